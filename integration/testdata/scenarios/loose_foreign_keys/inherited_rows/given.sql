-- Rows of tables that inherit from the child table are not children, as with a native
-- foreign key.
CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint);
CREATE INDEX ON children (parent_id);
CREATE TABLE heirs () INHERITS (children);
INSERT INTO children SELECT 10 * id, id FROM parents;
INSERT INTO heirs VALUES (1000, 1);
