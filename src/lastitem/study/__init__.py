"""The study: its config, the runs it consists of, and what each script depends on."""
