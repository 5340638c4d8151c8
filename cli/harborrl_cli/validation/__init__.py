"""Everything that can be known of a HarborRLJob without a cluster: schema, rules, checks, raw arguments and data."""
