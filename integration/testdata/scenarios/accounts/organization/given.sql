-- The owner marked acme for deletion a month ago.
UPDATE organizations SET deleted_on = current_date, deleted_by = key_of(2) WHERE id = 1;
