-- $1 is true where contributions are to go as well.
SELECT sexton.delete_user(user_id => 1, initiator_id => 2, hard_delete => $1);
