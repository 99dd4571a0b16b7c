DROP TABLE IF EXISTS
    "sexton".audit, "sexton".samples, "sexton".generations, "sexton".job_kinds, "sexton".schedules, "sexton".clients, "sexton".runs, "sexton".leases;
