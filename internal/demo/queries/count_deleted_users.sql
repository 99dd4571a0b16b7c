SELECT count(*) FROM "public".users AS gone WHERE gone.id = ANY ($1)
