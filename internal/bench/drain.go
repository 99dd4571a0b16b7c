package bench

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/latency"
	"sexton/internal/problem"
)

// drains says what Drain compares. The ratios are those of Sexton's median to another one's: of rows per second more is better.
func drains(pace string) contest {
	return contest{
		name: "drain", targets: "parents", head: Row{{"pace", "", "", pace}}, begun: true,
		ratios: []contestRatio{
			{"ratio_to_one_statement", "sexton / one statement", speeds(sexton, oneStatement), ""},
			{"ratio_to_native", "/ native", speeds(sexton, nativeCascade), ""},
			{"ratio_to_in_list", "/ in list", speeds(sexton, inList), ""},
			// How long the application waits for its DELETE, and holds its locks.
			{"ratio_parent_delete_to_native", "parents / native", func(c comparison) float64 {
				return ratio(latency.Milliseconds(c.of(sexton).begun), latency.Milliseconds(c.of(nativeCascade).begun))
			}, "%.4f"},
			{"ratio_wal_to_native", "WAL / native", wals(sexton, nativeCascade), ""},
		},
		how:  ", pace " + pace + ", limits of a pass lifted",
		note: "in list: 1,000 parents per IN list, LIMIT 1,000 (updates 500), skipping and waiting pass, no sequential scans",
		work: "half of the parents deleted",
	}
}

// Drain deletes parents and measures how their children go: by Sexton, by one statement, by ON DELETE CASCADE
// or SET NULL, and by statements of the original's shape. After every one it checks that exactly the right
// rows are gone.
func (o *Options) Drain(ctx context.Context, g *Cluster) (*Report, error) {
	return compareSets(ctx, g, *o, drains(g.Pace), newDataSet)
}

// The data sets, at their full size: 10,000 parents with 100 children each; 2,000 parents with 50 children in
// each of 20 tables; one parent with a million children beside 1,000 with 10; the first one with three more
// indexes, where children lose their parent but stay; 100,000 parents with one child each; and 600 parents with one child in each of three tables: one whose
// rows cost 20 ms each by a trigger, one without an index, and one above a native cascade without an index.
const (
	Wide    = "wide"
	Fanout  = "fanout"
	Skew    = "skew"
	Nullify = "nullify"
	Single  = "single"
	Slow    = "slow"
)

// DrainSets lists the data sets in their order.
func DrainSets() []string { return []string{Wide, Fanout, Skew, Nullify, Single, Slow} }

// dataSet is parents 1 … targets+spared and their children in one or more tables. Neighbours in a table belong
// to different parents, the bad case for locality. Spared parents are there to show that nothing else goes.
type dataSet struct {
	name            string
	targets, spared int64
	tables          []string
	// rows are those of each table; parentOf is the SQL expression for the parent of row n.
	rows     int64
	parentOf string
	nullify  bool
	// indexed are further columns, each with an index.
	indexed []string
	// filler is the SQL expression for the other values of a child n; empty for letters of the same sort.
	filler string
}

// The tables of the slow set.
const (
	triggered = "children_triggered"
	bare      = "children_bare"
	above     = "children_above"
)

// newDataSet returns one of DrainSets at a fraction of its full size.
func newDataSet(name string, scale float64) (dataSet, error) {
	sized := func(full int64) int64 { return max(10, int64(float64(full)*scale)) }
	s := dataSet{name: name, tables: []string{"children"}}
	perParent := int64(100)
	switch name {
	case Wide:
		s.targets = sized(10_000)
	case Nullify:
		s.targets, s.nullify, s.indexed = sized(10_000), true, []string{"a", "b", "c"}
	case Single:
		s.targets, perParent = sized(100_000), 1
	case Fanout:
		s.targets, s.tables, perParent = sized(2000), nil, 50
		for i := range 20 {
			s.tables = append(s.tables, fmt.Sprintf("children_%02d", i+1))
		}
	case Skew:
		small, big := sized(1000), sized(1_000_000)
		s.targets, s.spared = small+1, small/10
		few := (small + s.spared) * 10
		s.rows = big + few
		step := s.rows / few
		s.parentOf = fmt.Sprintf("CASE WHEN n %% %[1]d = 0 AND n / %[1]d <= %[2]d THEN 2 + (n / %[1]d - 1) %% %[3]d ELSE 1 END", step, few, small+s.spared)
		return s, nil
	case Slow:
		s.targets, s.spared, s.tables = sized(600), sized(60_000), []string{triggered, bare, above}
		s.rows, s.parentOf = s.targets+s.spared, "n"
		return s, nil
	default:
		return dataSet{}, fmt.Errorf("no data set %q", name)
	}
	s.spared = s.targets / 10
	s.rows = (s.targets + s.spared) * perParent
	s.parentOf = fmt.Sprintf("(n - 1) %% %d + 1", s.targets+s.spared)
	return s, nil
}

// create is the SQL of the tables.
func (s dataSet) create() string {
	var sql strings.Builder
	sql.WriteString("CREATE TABLE parents (id bigint PRIMARY KEY, filler text);\n")
	for _, table := range s.tables {
		fmt.Fprintf(&sql, "CREATE TABLE %s (id bigint PRIMARY KEY, parent_id bigint, filler text", table)
		for _, column := range s.indexed {
			fmt.Fprintf(&sql, ", %s bigint", column)
		}
		sql.WriteString(");\n")
		if table != bare {
			fmt.Fprintf(&sql, "CREATE INDEX ON %s (parent_id);\n", table)
		}
		for _, column := range s.indexed {
			fmt.Fprintf(&sql, "CREATE INDEX ON %s (%s);\n", table, column)
		}
	}
	if s.name == Slow {
		sql.WriteString(`CREATE TABLE grandchildren (id bigint PRIMARY KEY, child_id bigint REFERENCES ` + above + ` ON DELETE CASCADE);
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_catalog.pg_sleep(0.02); RETURN old; END';
CREATE TRIGGER slow BEFORE DELETE ON ` + triggered + ` FOR EACH ROW EXECUTE FUNCTION slow();
`)
	}
	return sql.String()
}

// fill are the statements that fill the tables. A row of a child takes about 115 bytes.
func (s dataSet) fill() []string {
	statements := []string{fmt.Sprintf("INSERT INTO parents SELECT id, repeat('x', 60) FROM generate_series(1, %d) AS id", s.targets+s.spared)}
	filler, others := cmp.Or(s.filler, fmt.Sprintf("repeat('x', %d)", 70-8*len(s.indexed))), ""
	for i := range s.indexed {
		others += fmt.Sprintf(", n * %d %% 1000003", 7919+2*i)
	}
	for _, table := range s.tables {
		statements = append(statements, fmt.Sprintf("INSERT INTO %s SELECT n, %s, %s%s FROM generate_series(1, %d::bigint) AS n",
			table, s.parentOf, filler, others, s.rows))
	}
	if s.name == Slow {
		statements = append(statements, fmt.Sprintf("INSERT INTO grandchildren SELECT n, n FROM generate_series(1, %d::bigint) AS n", s.rows))
	}
	return statements
}

// definitions are the loose foreign keys of the set.
func (s dataSet) definitions() string {
	var yaml strings.Builder
	action := "async_delete"
	if s.nullify {
		action = "async_nullify"
	}
	for _, table := range s.tables {
		fmt.Fprintf(&yaml, "%s:\n  - {table: parents, column: parent_id, on_delete: %s}\n", table, action)
	}
	return yaml.String()
}

func (s dataSet) title() string { return s.name }

func (s dataSet) size() int64 { return s.targets }

func (s dataSet) variants() []variant {
	return []variant{
		{name: oneStatement, ready: analyzeTombstones, drain: s.drainByOneStatement},
		{name: nativeCascade, stalls: true, prepare: s.addForeignKeys},
		{name: inList, drain: s.drainByInLists},
		{name: sexton, stalls: true, prepare: openWorker, drain: drainByWorker},
	}
}

// childWatch times statements on child tables, and those on tombstones alone.
func childWatch() *stopwatch { return &stopwatch{work: "children", queue: tombstones} }

// trial deletes parents 1 … targets: no child of theirs may remain, and nothing else may change.
func (s dataSet) trial(targets int64) trial {
	t := trial{
		done: func(c content) content {
			c.referring -= c.targets
			if !s.nullify {
				c.rows -= c.targets
			}
			c.targets = 0
			return c
		},
		leftovers: "SELECT nullif(count(*), 0) || ' tombstones' FROM " + tombstones, definitions: s.definitions(), watch: childWatch(),
	}
	for _, table := range s.tables {
		t.tables = append(t.tables, counted{table, `SELECT count(*), count(parent_id), count(*) FILTER (WHERE parent_id <= $1),
			coalesce(sum(id) FILTER (WHERE parent_id > $1), 0)::bigint, 0 FROM ` + table, []any{targets}})
	}
	if targets > 0 {
		t.begin = func(ctx context.Context, conn *pgx.Conn) (time.Duration, error) {
			_, took, err := timed(ctx, conn, "DELETE FROM parents WHERE id <= $1", targets)
			return took, problem.Doing(err, "delete parents")
		}
	}
	return t
}

// childrenOf is the foreground's query of a table.
func childrenOf(table string) string {
	return "SELECT id, filler FROM " + table + " WHERE parent_id = $1 LIMIT 100"
}

// readable is the first of the parents whose children the foreground reads. The big one of skew is left out: its children
// would be looked for by sequential scans, as the notes of a big user would (see notesOfAnIssue).
func (s dataSet) readable() int64 {
	if s.name == Skew {
		return 2
	}
	return 1
}

// transaction reads at most 100 children of one parent and another child, and updates that one, in one round trip.
func (s dataSet) transaction(ctx context.Context, conn *pgx.Conn) error {
	table, first := s.tables[rand.IntN(len(s.tables))], s.readable()
	return use(ctx, conn, childrenOf(table), first+rand.Int64N(s.targets+s.spared-first+1), table, "filler", 1+rand.Int64N(s.rows))
}
