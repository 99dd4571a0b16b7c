-- $1 is true for a hard deletion, which also deletes contributions.
SELECT sexton.delete_user(user_id => 1, initiator_id => 2, hard_delete => $1);
