-- A deletion can be canceled until the first row has been changed.
SELECT sexton.delete_user(key_of(1), key_of(2));
