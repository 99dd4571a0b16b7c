SELECT id, who(user_id), name FROM award_emoji ORDER BY id;

-- soft:
--   1 | ghost | tada
--   3 | ghost | rocket
--   4 | ben | tada
--
-- hard:
--   1 | ghost | tada
--   4 | ben | tada
