-- For the code generator alone: migrations find the schema already there.
CREATE SCHEMA "sexton";
