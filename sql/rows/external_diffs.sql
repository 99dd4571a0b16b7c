INSERT INTO "sexton".external_diff_installation SELECT WHERE NOT EXISTS (SELECT FROM "sexton".external_diff_installation);
