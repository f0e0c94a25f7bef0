"""Workers as the judge sees them: job queue, worker client and status, verdict cache, zygotes (pre-imported fork servers), scratch."""
