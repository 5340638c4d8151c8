"""Pure builders: a resolved job -> the objects that it becomes, one module a kind, each with golden YAML."""
