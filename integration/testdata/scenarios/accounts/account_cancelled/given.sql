-- Until the first row is changed a deletion can be cancelled.
SELECT sexton.delete_user(key_of(1), key_of(2));
