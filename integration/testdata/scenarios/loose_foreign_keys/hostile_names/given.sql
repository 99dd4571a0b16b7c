CREATE SCHEMA "Sche ma";
CREATE TABLE "Sche ma"."Pa""rents; DROP TABLE x" (id bigint PRIMARY KEY);
CREATE TABLE "public"."sel.ect" ("from" bigint PRIMARY KEY, "Par%I'ent $1" bigint, "ünï" text);
INSERT INTO "Sche ma"."Pa""rents; DROP TABLE x" VALUES (1), (2);
INSERT INTO "sel.ect" VALUES (1, 1, 'it''s'), (2, 1, 'other'), (3, 2, 'it''s');
