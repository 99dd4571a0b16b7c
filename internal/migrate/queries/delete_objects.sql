DELETE FROM "sexton".objects WHERE component = $1 AND identity <> $2;
