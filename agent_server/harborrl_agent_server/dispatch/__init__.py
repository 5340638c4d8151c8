"""Several server processes in one pod, behind one port."""
