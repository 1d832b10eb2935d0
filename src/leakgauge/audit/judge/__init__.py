"""From the scores of the cells to what an audit says: statistics, ceilings, verdicts, the ledger, the result."""
