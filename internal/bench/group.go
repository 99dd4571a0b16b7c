package bench

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
)

// destructions says what Group compares: the job with one DELETE, the longest transaction of the job with that DELETE.
func destructions() contest {
	return contest{
		name: "group", targets: "projects", single: true,
		ratios: []contestRatio{
			{"ratio_seconds_to_native", "seconds / native", func(c comparison) float64 {
				return ratio(c.of(sexton).seconds, c.of(nativeCascade).seconds)
			}, ""},
			{"ratio_longest_statement_to_native", "longest statement / native", func(c comparison) float64 {
				return ratio(c.of(sexton).statementMS.Max, c.of(nativeCascade).statementMS.P50)
			}, "%.4f"},
			{"ratio_wal_to_native", "WAL / native", wals(sexton, nativeCascade), ""},
		},
		work: "the group deleted",
	}
}

// FlatGroup has its projects itself; DeepGroup has them in four levels of groups; RingGroup has issues that refer to each other in rings of 10.
const (
	FlatGroup = "flat"
	DeepGroup = "levels"
	RingGroup = "ring"
)

// GroupSets lists the data sets in their order.
func GroupSets() []string { return []string{FlatGroup, DeepGroup, RingGroup} }

// forest is group 1, which is to go, with the groups 3 to 5 if it has levels, and group 2, a tenth as big.
type forest struct {
	Set             string
	Targets, spared int64
}

const (
	issuesPerProject = 100
	notesPerIssue    = 9
)

// Projects counts them.
func (f forest) Projects() int64 { return f.Targets + f.spared }

// Issues counts them.
func (f forest) Issues() int64 { return f.Projects() * issuesPerProject }

// Notes counts them.
func (f forest) Notes() int64 { return f.Issues() * notesPerIssue }

func (f forest) source() source {
	return source{create: text("group.sql", f), fill: statements("group_fill.sql", f)}
}

func (forest) title() string { return "group" }

func (forest) size() int64 { return 1 }

func (forest) variants() []variant {
	return []variant{
		{name: nativeCascade, stalls: true, drain: func(ctx context.Context, p *dataCopy) error {
			_, err := p.send(ctx, "groups", "DELETE FROM groups WHERE id = 1")
			return err
		}},
		{name: sexton, stalls: true, prepare: openWorker, drain: drainByWorker},
	}
}

// trial is the destruction of group 1, if targets is not 0: exactly group 2 is left.
func (f forest) trial(targets int64) trial {
	t := trial{
		done:  func(c content) content { return content{rows: c.rows - c.targets, others: c.others} },
		watch: &stopwatch{work: "DELETE FROM", queue: tombstones},
	}
	// Projects, issues and notes belong to those above them as fill has made them.
	below := func(parent string) string {
		return fmt.Sprintf("(%s - 1) %% %d + 1 <= %d", parent, f.Projects(), f.Targets)
	}
	for table, goes := range map[string]string{
		"groups": "id <> 2", "projects": below("id"), "issues": below("project_id"), "notes": below("issue_id"),
	} {
		t.tables = append(t.tables, counted{table, fmt.Sprintf(`
			SELECT count(*), 0, count(*) FILTER (WHERE goes), coalesce(sum(id) FILTER (WHERE NOT goes), 0)::bigint, 0
			FROM (SELECT id, $1 AND %s AS goes FROM %s) AS found`, goes, table), []any{targets > 0}})
	}
	return t
}

// transaction reads the notes of some issue and another one, and updates that one. Of ten one is about a group that stays.
func (f forest) transaction(ctx context.Context, conn *pgx.Conn) error {
	return use(ctx, conn, "SELECT id, note FROM notes WHERE issue_id = $1 LIMIT 100", 1+rand.Int64N(f.Issues()),
		"notes", "note", 1+rand.Int64N(f.Notes()))
}

// Group destroys a group in two ways and measures what that takes, and what others feel of it. The cluster has to be one of the
// job that destroys group 1, on behalf of user 1. The full size are 1,000 projects, with 100 issues of 9 notes each. Set is one of GroupSets.
func Group(ctx context.Context, g *Cluster, set string, o Options) (*Report, error) {
	f := forest{Set: set, Targets: max(10, int64(1000*o.Scale))}
	f.spared = max(2, f.Targets/10)
	found, err := g.compare(ctx, f, o)
	if err != nil {
		return nil, err
	}
	found.set, found.targets = set, f.Targets
	return destructions().report(g, o, found), nil
}
