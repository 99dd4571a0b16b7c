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
	set             string
	targets, spared int64
}

const (
	issuesPerProject = 100
	notesPerIssue    = 9
)

const groupTables = `
CREATE TABLE users (id bigint PRIMARY KEY, username text, email text, name text, state text, user_type smallint, admin boolean);
CREATE TABLE application_settings (deletion_adjourned_period integer);
CREATE TABLE groups (id bigint PRIMARY KEY, parent_id bigint REFERENCES groups ON DELETE CASCADE, name text, path text, marked_for_deletion_on date);
CREATE TABLE projects (id bigint PRIMARY KEY, group_id bigint NOT NULL REFERENCES groups ON DELETE CASCADE, path text);
CREATE TABLE members (
    id bigint PRIMARY KEY, user_id bigint, source_type text, source_id bigint, access_level integer, state smallint, requested_at timestamptz, expires_at date
);
CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE, title text);
CREATE TABLE notes (id bigint PRIMARY KEY, issue_id bigint NOT NULL REFERENCES issues ON DELETE CASCADE, note text);
CREATE INDEX ON groups (parent_id);
CREATE INDEX ON projects (group_id);
CREATE INDEX ON members (source_id);
CREATE INDEX ON issues (project_id);
CREATE INDEX ON notes (issue_id);`

// fill are the statements that fill the tables. Neighbours in a table belong to different projects, the bad case for
// locality.
func (f forest) fill() []string {
	projects := f.targets + f.spared
	group, next := "1", ""
	levels := "SELECT WHERE false"
	switch f.set {
	case DeepGroup:
		levels = "INSERT INTO groups SELECT n, CASE n WHEN 3 THEN 1 ELSE n - 1 END, n, n FROM generate_series(3, 5) AS n"
		group = "CASE n % 4 WHEN 0 THEN 1 ELSE 2 + n % 4 END"
	case RingGroup:
		next = fmt.Sprintf(", n + CASE (n - 1) / %[1]d %% 10 WHEN 9 THEN -9 ELSE 1 END * %[1]d", projects)
	}
	return []string{
		"INSERT INTO users VALUES (1, 'admin', 'admin@example.com', 'Admin', 'active', 0, true)",
		"INSERT INTO application_settings VALUES (1)",
		"INSERT INTO groups VALUES (1, NULL, 'target', 'target', '2020-01-01'), (2, NULL, 'spared', 'spared', NULL)",
		"INSERT INTO group_deletion_schedules VALUES (1, 1, '2020-01-01')",
		levels,
		fmt.Sprintf("INSERT INTO projects SELECT n, CASE WHEN n <= %d THEN %s ELSE 2 END, 'project-' || n FROM generate_series(1, %d) AS n",
			f.targets, group, projects),
		fmt.Sprintf("INSERT INTO issues SELECT n, (n - 1) %% %d + 1, repeat('x', 60)%s FROM generate_series(1, %d) AS n",
			projects, next, projects*issuesPerProject),
		fmt.Sprintf("INSERT INTO notes SELECT n, (n - 1) %% %d + 1, repeat('x', 70) FROM generate_series(1, %d) AS n",
			projects*issuesPerProject, projects*issuesPerProject*notesPerIssue),
	}
}

func (forest) title() string { return "group" }

func (forest) size() int64 { return 1 }

func (f forest) create() string {
	if f.set == RingGroup {
		return groupTables + "\nALTER TABLE issues ADD next_id bigint REFERENCES issues ON DELETE CASCADE; CREATE INDEX ON issues (next_id);"
	}
	return groupTables
}

func (forest) definitions() string { return "" }

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
		return fmt.Sprintf("(%s - 1) %% %d + 1 <= %d", parent, f.targets+f.spared, f.targets)
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
	issues := (f.targets + f.spared) * issuesPerProject
	return use(ctx, conn, "SELECT id, note FROM notes WHERE issue_id = $1 LIMIT 100", 1+rand.Int64N(issues),
		"notes", "note", 1+rand.Int64N(issues*notesPerIssue))
}

// Group destroys a group in two ways and measures what that takes, and what others feel of it. The cluster has to be one of the
// job that destroys group 1, on behalf of user 1. The full size are 1,000 projects, with 100 issues of 9 notes each. Set is one of GroupSets.
func Group(ctx context.Context, g *Cluster, set string, o Options) (*Report, error) {
	f := forest{set: set, targets: max(10, int64(1000*o.Scale))}
	f.spared = max(2, f.targets/10)
	found, err := g.compare(ctx, f, o)
	if err != nil {
		return nil, err
	}
	found.set, found.targets = set, f.targets
	return destructions().report(g, o, found), nil
}
