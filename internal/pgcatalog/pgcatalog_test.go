package pgcatalog_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

const tables = `
CREATE SCHEMA "Other";
CREATE DOMAIN short AS varchar(20);
CREATE DOMAIN shorter AS short;
CREATE TABLE parents (id bigint PRIMARY KEY, kind integer NOT NULL DEFAULT 1, UNIQUE (id, kind));
CREATE TABLE "Other"."Children" (
	id integer GENERATED ALWAYS AS IDENTITY,
	parent_id bigint REFERENCES parents ON DELETE CASCADE,
	kind integer,
	name shorter NOT NULL,
	twice integer GENERATED ALWAYS AS (kind * 2) STORED,
	gone text,
	PRIMARY KEY (id),
	FOREIGN KEY (kind, parent_id) REFERENCES parents (kind, id) ON DELETE SET NULL);
ALTER TABLE "Other"."Children" DROP COLUMN gone;
CREATE INDEX partial ON "Other"."Children" (kind) WHERE kind > 0;
CREATE INDEX filled ON "Other"."Children" (kind) WHERE parent_id IS NOT NULL AND kind IS NOT NULL;
CREATE INDEX empty ON "Other"."Children" (kind) WHERE parent_id IS NOT NULL AND kind IS NULL;
CREATE UNIQUE INDEX named ON "Other"."Children" (name) INCLUDE (kind);
CREATE INDEX expression ON "Other"."Children" (lower(name), kind);
CREATE INDEX hashed ON "Other"."Children" USING hash (parent_id);
CREATE TABLE parts (id bigint, at integer NOT NULL, parent_id bigint REFERENCES parents ON DELETE RESTRICT, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (at);
CREATE TABLE parts_2a PARTITION OF parts_2 FOR VALUES FROM (10) TO (20);
CREATE INDEX ON parts_1 (parent_id);
CREATE VIEW seen AS SELECT id FROM parents;
CREATE TABLE apart (parent_id bigint REFERENCES parents);`

// read creates the tables above and returns the relations by name.
func read(t *testing.T) (db *pgtest.Database, found map[string]*pgcatalog.Relation) {
	db = pgtest.New(t)
	db.Exec(tables)
	found = map[string]*pgcatalog.Relation{}
	settled(t, db, func(ctx context.Context, tx pgx.Tx) {
		oids := pgtest.Must(pgcatalog.InSchemas(ctx, tx, []string{"public", "Other"}))(t)
		for _, r := range pgtest.Must(pgcatalog.Read(ctx, tx, append(oids, 1)))(t) {
			found[r.Name] = r
		}
	})
	return db, found
}

func settled(t *testing.T, db *pgtest.Database, do func(ctx context.Context, tx pgx.Tx)) {
	err := pgcatalog.Settled(t.Context(), db.Pool(), func(tx pgx.Tx) error {
		do(t.Context(), tx)
		return nil
	})
	require.NoError(t, err)
}

func TestRead(t *testing.T) {
	t.Parallel()
	_, found := read(t)
	require.Len(t, found, 8, "an OID without a table is omitted")

	children := found["Children"]
	require.Equal(t, `"Other"."Children"`, children.SQL())
	require.Equal(t, `"Other"."Children"`, children.Printed)
	require.Equal(t, "Other.Children", children.Label())
	require.True(t, children.IsTable())
	require.False(t, children.IsPartition())
	require.Equal(t, []pgcatalog.Table{children.Table}, children.Leaves)
	require.Equal(t, map[string]pgcatalog.Column{
		"id": {
			Name: "id", Type: "integer", Base: "pg_catalog.int4", NotNull: true, Generated: true,
			HasDefault: true,
		},
		"parent_id": {Name: "parent_id", Type: "bigint", Base: "pg_catalog.int8"},
		"kind":      {Name: "kind", Type: "integer", Base: "pg_catalog.int4"},
		"name": {
			Name: "name", Type: "public.shorter", Base: `pg_catalog."varchar"`, Domain: true,
			Collation: pgcatalog.Collation{Name: `pg_catalog."default"`}, NotNull: true,
		},
		"twice": {Name: "twice", Type: "integer", Base: "pg_catalog.int4", Generated: true, HasDefault: true},
	}, children.Columns)

	parents := found["parents"]
	require.Equal(t, `"public"."parents"`, parents.SQL())
	require.Equal(t, "public.parents", parents.Printed)
	require.Equal(t, "parents", parents.Label())
	require.False(t, found["seen"].IsTable())
	require.Empty(t, found["seen"].Leaves)
	require.Empty(t, found["seen"].PrimaryKey())
}

func TestPartitions(t *testing.T) {
	t.Parallel()
	_, found := read(t)
	parts, first, middle, second := found["parts"], found["parts_1"], found["parts_2"], found["parts_2a"]
	require.True(t, parts.IsTable())
	require.False(t, parts.IsPartition())
	require.Equal(t, []pgcatalog.Table{first.Table, second.Table}, parts.Leaves, "without partitions that are partitioned")
	require.Equal(t, []pgcatalog.Table{second.Table}, middle.Leaves)
	require.Nil(t, parts.Foreign)
	for _, partition := range []*pgcatalog.Relation{first, middle, second} {
		require.True(t, partition.IsPartition())
		require.Equal(t, parts.OID, partition.Root)
	}
	require.True(t, parts.Columns["at"].Partitioning)
	require.False(t, parts.Columns["id"].Partitioning)
	require.False(t, parts.Leads(parts.OID, "parent_id"))
	require.True(t, parts.Leads(first.OID, "parent_id"), "an index of one leaf")
	require.False(t, parts.Leads(second.OID, "parent_id"))
	require.True(t, first.Leads(first.OID, "parent_id"), "the leaf itself has the same index")
}

// Read does not wait for locks, such as the lock of a VACUUM FULL. Otherwise each start
// of a worker and each status query would wait.
func TestReadIgnoresLocks(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(tables)
	pgtest.Begin(t, db.Pool(), `LOCK TABLE parts, parents, "Other"."Children" IN ACCESS EXCLUSIVE MODE`)
	settled(t, db, func(ctx context.Context, tx pgx.Tx) {
		pgtest.Must(tx.Exec(ctx, "SET LOCAL lock_timeout = '1ms'"))(t)
		oids := pgtest.Must(pgcatalog.InSchemas(ctx, tx, []string{"public", "Other"}))(t)
		pgtest.Must(pgcatalog.Read(ctx, tx, oids))(t)
	})
}

func TestForeignPartition(t *testing.T) {
	t.Parallel()
	db, _ := read(t)
	db.Exec(`
		CREATE FOREIGN DATA WRAPPER elsewhere;
		CREATE SERVER far FOREIGN DATA WRAPPER elsewhere;
		CREATE TABLE mixed (id bigint) PARTITION BY RANGE (id);
		CREATE FOREIGN TABLE mixed_1 PARTITION OF mixed FOR VALUES FROM (0) TO (10) SERVER far;`)
	settled(t, db, func(ctx context.Context, tx pgx.Tx) {
		oids := pgtest.Must(pgcatalog.Named(ctx, tx, []string{"public", "public"}, []string{"mixed", "none"}))(t)
		require.Len(t, oids, 1, "a name that does not exist is omitted")
		relations := pgtest.Must(pgcatalog.Read(ctx, tx, oids))(t)
		require.Equal(t, "mixed_1", relations[oids[0]].Foreign.Label())
		require.Empty(t, relations[oids[0]].Leaves)
	})
}

// A string constant has the same value under any standard_conforming_strings.
func TestLiteral(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, conforming := range []string{"on", "off"} {
		tx := pgtest.Begin(t, db.Pool(), "SET LOCAL standard_conforming_strings = "+conforming)
		for _, value := range []string{"", "'", `a\b`, `\'`, `'\`, "日本"} {
			require.Equal(t, value, pgtest.Scalar[string](t, tx, "SELECT "+pgcatalog.Literal(value)+"::text"),
				conforming)
		}
	}
}

func TestIndexes(t *testing.T) {
	t.Parallel()
	_, found := read(t)
	children := found["Children"]
	require.Equal(t, []string{"id"}, children.PrimaryKey())
	require.Equal(t, []string{"id", "at"}, found["parts"].PrimaryKey())
	require.True(t, children.Unique("id"))
	require.True(t, children.Unique("name"), "included columns are not part of the key")
	require.False(t, children.Unique("kind"))
	require.False(t, found["parents"].Unique("kind"), "unique with another column only")
	require.True(t, children.Leads(children.OID, "parent_id"), "a hash index is sufficient")
	require.False(t, children.Leads(children.OID, "kind"), "a partial index does not have all rows")
	require.False(t, children.Leads(children.OID, "twice"))

	var names []string
	for _, i := range children.Indexes[children.OID] {
		require.True(t, i.Valid)
		if i.Method != "btree" {
			names = append(names, "hash")
		}
		if i.Predicate != "" {
			require.False(t, i.Complete())
			names = append(names, i.Predicate)
		}
		names = append(names, i.Columns...)
	}
	require.Equal(t, []string{
		"id", "?", "kind", "(parent_id IS NOT NULL) AND (kind IS NOT NULL)", "kind", "?", "kind",
		"name", "", "kind", "hash", "parent_id",
	}, names, "the oldest index first, expressions without a name")
	require.False(t, pgcatalog.Index{Valid: false}.Complete())
}

func TestOrderOfAnIndex(t *testing.T) {
	t.Parallel()
	i := pgcatalog.Index{Columns: []string{"a", "b", ""}}
	require.Equal(t, []int{0}, i.Order([]string{"a"}))
	require.Equal(t, []int{1, 0}, i.Order([]string{"b", "a"}))
	require.Nil(t, i.Order([]string{"b"}), "the index does not begin with b")
	require.Nil(t, i.Order([]string{"a", "c"}))
	require.Nil(t, i.Order([]string{"a", "b", "c"}), "an expression is not a column")
	require.Nil(t, i.Order([]string{"a", "b", "c", "d"}))
}

func TestForeignKeys(t *testing.T) {
	t.Parallel()
	db, found := read(t)
	settled(t, db, func(ctx context.Context, tx pgx.Tx) {
		keys := pgtest.Must(pgcatalog.ForeignKeys(ctx, tx))(t)
		parents := found["parents"].OID
		require.Equal(t, []pgcatalog.ForeignKey{
			{
				Name: "Children_parent_id_fkey", Table: found["Children"].OID, Target: parents,
				Columns: []string{"parent_id"}, TargetColumns: []string{"id"}, Set: []string{"parent_id"},
				OnDelete: pgcatalog.Cascade,
			},
			{
				Name: "Children_kind_parent_id_fkey", Table: found["Children"].OID, Target: parents,
				Columns: []string{"kind", "parent_id"}, TargetColumns: []string{"kind", "id"},
				Set: []string{"kind", "parent_id"}, OnDelete: pgcatalog.SetNull,
			},
			{
				Name: "apart_parent_id_fkey", Table: found["apart"].OID, Target: parents,
				Columns: []string{"parent_id"}, TargetColumns: []string{"id"}, Set: []string{"parent_id"},
				OnDelete: pgcatalog.NoAction,
			},
			{
				Name: "parts_parent_id_fkey", Table: found["parts"].OID, Target: parents,
				Columns: []string{"parent_id"}, TargetColumns: []string{"id"}, Set: []string{"parent_id"},
				OnDelete: pgcatalog.Restrict,
			},
		}, keys, "keys that partitions inherit are omitted")
	})
}

func TestUntested(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]problem.Severity{
		"9.6.24": problem.Error, "13.22": problem.Error, "14.0": "", "18.4 (Debian 18.4-1)": "",
		"19beta1": problem.Warning, "20devel": problem.Warning, "": "",
	} {
		found := pgcatalog.Untested(version)
		require.Equal(t, want, found.Severity, version)
		if want != "" {
			require.Contains(t, found.String(), version)
		}
	}
}

func TestMain(m *testing.M) { pgtest.Main(m) }
