SELECT sexton.delete_user(key_of(1), key_of(2), $1);
