"""Workers as the judge sees them: queue, worker clients and their status, verdict cache, zygotes, scratch folder."""
