UPDATE organizations SET deleted_on = current_date - 31 WHERE id = 1;
