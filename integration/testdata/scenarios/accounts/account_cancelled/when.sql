SELECT sexton.cancel_user_deletion(key_of(1), key_of(2));
