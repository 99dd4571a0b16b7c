package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/jobrun"
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
				return ratio(jobrun.Milliseconds(c.of(sexton).begun), jobrun.Milliseconds(c.of(nativeCascade).begun))
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
	Name            string
	Targets, Spared int64
	Tables          []string
	// Rows are those of each table; ParentOf is the SQL expression for the parent of row n.
	Rows     int64
	ParentOf string
	// Nullify has the children stay, with three more indexes.
	Nullify bool
	// Filler is the SQL expression for the other values of a child n; empty for letters of the same sort.
	Filler string
}

// newDataSet returns one of DrainSets at a fraction of its full size.
func newDataSet(name string, scale float64) (dataSet, error) {
	sized := func(full int64) int64 { return max(10, int64(float64(full)*scale)) }
	s := dataSet{Name: name, Tables: []string{"children"}}
	perParent := int64(100)
	switch name {
	case Wide:
		s.Targets = sized(10_000)
	case Nullify:
		s.Targets, s.Nullify = sized(10_000), true
	case Single:
		s.Targets, perParent = sized(100_000), 1
	case Fanout:
		s.Targets, s.Tables, perParent = sized(2000), nil, 50
		for i := range 20 {
			s.Tables = append(s.Tables, fmt.Sprintf("children_%02d", i+1))
		}
	case Skew:
		small, big := sized(1000), sized(1_000_000)
		s.Targets, s.Spared = small+1, small/10
		few := (small + s.Spared) * 10
		s.Rows = big + few
		step := s.Rows / few
		s.ParentOf = fmt.Sprintf("CASE WHEN n %% %[1]d = 0 AND n / %[1]d <= %[2]d THEN 2 + (n / %[1]d - 1) %% %[3]d ELSE 1 END", step, few, small+s.Spared)
		return s, nil
	case Slow:
		s.Targets, s.Spared, s.Tables = sized(600), sized(60_000), []string{"children_triggered", "children_bare", "children_above"}
		s.Rows, s.ParentOf = s.Targets+s.Spared, "n"
		return s, nil
	default:
		return dataSet{}, fmt.Errorf("no data set %q", name)
	}
	s.Spared = s.Targets / 10
	s.Rows = (s.Targets + s.Spared) * perParent
	s.ParentOf = fmt.Sprintf("(n - 1) %% %d + 1", s.Targets+s.Spared)
	return s, nil
}

// All counts the parents.
func (s dataSet) All() int64 { return s.Targets + s.Spared }

func (s dataSet) source() source {
	return source{text("children.sql", s), text("children.yml", s), statements("children_fill.sql", s)}
}

func (s dataSet) title() string { return s.Name }

func (s dataSet) size() int64 { return s.Targets }

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
			if !s.Nullify {
				c.rows -= c.targets
			}
			c.targets = 0
			return c
		},
		leftovers: "SELECT nullif(count(*), 0) || ' tombstones' FROM " + tombstones, definitions: s.source().definitions, watch: childWatch(),
	}
	for _, table := range s.Tables {
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
	if s.Name == Skew {
		return 2
	}
	return 1
}

// transaction reads at most 100 children of one parent and another child, and updates that one, in one round trip.
func (s dataSet) transaction(ctx context.Context, conn *pgx.Conn) error {
	table, first := s.Tables[rand.IntN(len(s.Tables))], s.readable()
	return use(ctx, conn, childrenOf(table), first+rand.Int64N(s.Targets+s.Spared-first+1), table, "filler", 1+rand.Int64N(s.Rows))
}
