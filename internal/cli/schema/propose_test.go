package schema_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/schema"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// site returns a database with the given tables.
func site(t *testing.T, tables string) (loosefk.Site, *pgtest.Database) {
	t.Helper()
	db := pgtest.New(t)
	db.Exec(tables)
	return loosefk.Site{Name: "main", Schema: "public", DB: db.Pool()}, db
}

// Propose keeps a foreign key that no definition can replace, and returns the reason.
func TestKeptForeignKeys(t *testing.T) {
	t.Parallel()
	s, _ := site(t, `CREATE TABLE p (id int PRIMARY KEY, code text UNIQUE, part int);
		CREATE TABLE whole (id int PRIMARY KEY) PARTITION BY RANGE (id);
		CREATE TABLE piece PARTITION OF whole FOR VALUES FROM (0) TO (100);
		CREATE TABLE a_refuses (p int REFERENCES p);
		CREATE TABLE b_default (p int DEFAULT 1 REFERENCES p ON DELETE SET DEFAULT);
		CREATE TABLE c_follows (p int REFERENCES p ON UPDATE CASCADE ON DELETE CASCADE);
		CREATE TABLE d_code (p text REFERENCES p (code) ON DELETE CASCADE, q int REFERENCES p ON DELETE CASCADE);
		CREATE TABLE e_piece (p int REFERENCES piece ON DELETE CASCADE);
		CREATE TABLE f_null (p int NOT NULL REFERENCES p ON DELETE SET NULL);
		CREATE TABLE h_below (id int PRIMARY KEY, p int REFERENCES p ON DELETE CASCADE);
		CREATE TABLE i_diamond (h int REFERENCES h_below, p int REFERENCES p ON DELETE CASCADE);
		CREATE TABLE "J.dot" ("x y" int REFERENCES p ON DELETE CASCADE);
		CREATE SCHEMA left_out; CREATE TABLE left_out.k (p int REFERENCES p ON DELETE CASCADE)`)
	keys := pgtest.Must(schema.Propose(t.Context(), s, "left_out"))(t)
	kept, drops := map[string]string{}, []string{}
	for _, k := range keys {
		if k.Reason == "" {
			drops = append(drops, k.Drop())
			continue
		}
		kept[k.Child+"."+k.Columns[0]] = k.Reason
	}
	for child, reason := range map[string]string{
		"a_refuses.p": "refuses deletions", "b_default.p": "SET DEFAULT", "c_follows.p": "ON UPDATE",
		"d_code.p": "for the same parent|another definition refers to", "e_piece.p": "partition",
		"f_null.p": "NOT NULL", "h_below.p": "i_diamond_h_fkey of i_diamond refuses",
		"i_diamond.p": "i_diamond_h_fkey of i_diamond would refuse", "i_diamond.h": "refuses",
	} {
		require.Regexp(t, reason, kept[child], child)
		delete(kept, child)
	}
	require.Empty(t, kept)
	require.Equal(t, []string{
		`ALTER TABLE "public"."J.dot" DROP CONSTRAINT IF EXISTS "J.dot_x y_fkey";`,
		`ALTER TABLE "public"."d_code" DROP CONSTRAINT IF EXISTS "d_code_q_fkey";`,
	}, drops)
	require.Len(t, schema.Chosen(keys, []string{"d_code"}), 1)
	text := pgtest.Must(schema.WriteDefinitions(schema.Chosen(keys, nil)))(t)
	require.Contains(t, string(text), "\n    constraint: {name: J.dot_x y_fkey}\n")
	require.Len(t, pgtest.Must(definitions.Parse(definitions.File{Name: "proposed", Data: text}))(t), 2)
}

// Propose returns the estimates of the last ANALYZE, also for partitioned tables, and 0
// before the first ANALYZE.
func TestEstimatesOfForeignKeys(t *testing.T) {
	t.Parallel()
	s, db := site(t, `CREATE TABLE p (id int PRIMARY KEY);
		CREATE TABLE parts (id int, p int REFERENCES p ON DELETE CASCADE) PARTITION BY LIST (id);
		CREATE TABLE parts_0 PARTITION OF parts FOR VALUES IN (0);
		CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
		CREATE INDEX ON parts (p);
		INSERT INTO p SELECT generate_series(1, 10);
		INSERT INTO parts SELECT n % 2, CASE WHEN n <= 55 THEN 1 ELSE n % 10 + 1 END FROM generate_series(1, 100) AS n`)
	measured := func() []int64 {
		k := pgtest.Must(schema.Propose(t.Context(), s))(t)[0]
		require.True(t, k.Indexed)
		require.EqualValues(t, 16384, k.Bytes)
		return []int64{k.Rows, k.PerParent, k.Most}
	}
	require.Equal(t, []int64{0, 0, 0}, measured())
	db.Exec("ANALYZE")
	require.Equal(t, []int64{100, 10, 60}, measured())
}

// WayBack returns the statements that add a foreign key in place of a definition, or the
// reason why no foreign key can replace it.
func TestWayBack(t *testing.T) {
	t.Parallel()
	long := "x" + strings.Repeat("ä", 31)
	s, _ := site(t, `CREATE TABLE p (id int PRIMARY KEY);
		CREATE TABLE c (a int, b int, "`+long+`" int, d int, state int, kind int)`)
	defs := pgtest.Must(definitions.Parse(definitions.File{Name: "lfk.yml", Data: []byte(`c:
  - {table: p, column: a, on_delete: async_delete, conditions: [{column: kind, value: 1}]}
  - {table: p, column: b, on_delete: update_column_to, target_column: state, target_value: 3}
  - {table: p, column: ` + long + `, on_delete: async_delete}
  - {table: p, column: d, on_delete: async_nullify}
`)}))(t)
	parents, problems := pgtest.Must2(loosefk.Resolve(t.Context(), []loosefk.Site{s}, defs))(t)
	require.NoError(t, problems.Err())
	// The name c_d_fkey is used by a foreign key of the same column to another parent.
	statements, taken := map[string][]string{}, map[string]bool{`"public"."c"c_d_fkey`: true}
	for _, reference := range parents["main"][0].References {
		add, validate, reason := schema.WayBack(parents["main"][0], reference, taken)
		statements[reference.Columns[0]] = append(append(add, validate...), reason)
	}
	require.Equal(t, map[string][]string{
		"a": {"foreign keys cannot have conditions"},
		"b": {"foreign keys cannot set another column"},
		"d": {
			`ALTER TABLE "public"."c" ADD CONSTRAINT "c_d_fkey1" FOREIGN KEY ("d") REFERENCES "public"."p" ("id") ON DELETE SET NULL NOT VALID;`,
			`ALTER TABLE "public"."c" VALIDATE CONSTRAINT "c_d_fkey1";`, "",
		},
		long: {
			// The name is cut before a letter of several bytes, because the complete
			// letter would exceed the limit of 63 bytes.
			`ALTER TABLE "public"."c" ADD CONSTRAINT "c_` + long[:55] + `_fkey" FOREIGN KEY ("` + long +
				`") REFERENCES "public"."p" ("id") ON DELETE CASCADE NOT VALID;`,
			`ALTER TABLE "public"."c" VALIDATE CONSTRAINT "c_` + long[:55] + `_fkey";`, "",
		},
	}, statements)
}
