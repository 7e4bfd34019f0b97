"""Where messages rest: one interface (`base`), the reference in memory, the embedded log, the tail cache in front."""
