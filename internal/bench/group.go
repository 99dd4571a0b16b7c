package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/latency"
	"sexton/internal/sleep"
)

// GroupOptions says what to measure.
type GroupOptions struct {
	// Scale is a fraction of 1,000 projects, with 100 issues of 9 notes each.
	Scale float64
	// Rounds are how often each contender works; they take turns in who begins.
	Rounds int
	// Foreground also measures what clients feel that use the same tables meanwhile.
	Foreground bool
	// Duty is the share of its time that the job may work beside them, in percent; without them it is all.
	Duty int
}

// GroupReport compares two ways to get rid of a group.
type GroupReport struct {
	Benchmark string  `json:"benchmark"`
	Server    Server  `json:"server"`
	Scale     float64 `json:"scale"`
	Rounds    int     `json:"rounds"`
	// Duty is that of the job beside the foreground load, in percent; null where that was not asked for.
	Duty *int `json:"foreground_duty"`
	// Projects and Rows are those of the group, the projects among the rows.
	Projects   int64            `json:"projects"`
	Rows       int64            `json:"rows"`
	Contenders []GroupContender `json:"contenders"`
	// RatioSeconds and RatioWAL compare the job with the one DELETE, RatioLongest its longest transaction with that.
	RatioSeconds float64 `json:"ratio_seconds_to_native"`
	RatioLongest float64 `json:"ratio_longest_statement_to_native"`
	RatioWAL     float64 `json:"ratio_wal_to_native"`
	// Foreground is null where it was not asked for.
	Foreground []Foreground `json:"foreground"`
}

// GroupContender is one way, and what it took.
type GroupContender struct {
	Contender     string  `json:"contender"`
	Seconds       float64 `json:"seconds"`
	RowsPerSecond float64 `json:"rows_per_second"`
	WALBytes      int64   `json:"wal_bytes"`
	// Statements counts the ones that delete rows in one round, StatementMS how long they took in all rounds. Of Sexton's it is the
	// whole transaction, from BEGIN to COMMIT: as long are its locks held.
	Statements  int                 `json:"statements"`
	StatementMS latency.Percentiles `json:"statement_ms"`
}

// forest is group 1, which is to go, and group 2, a tenth as big.
type forest struct{ doomed, spared int64 }

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
	projects := f.doomed + f.spared
	return []string{
		"INSERT INTO users VALUES (1, 'admin', 'admin@example.com', 'Admin', 'active', 0, true)",
		"INSERT INTO application_settings VALUES (1)",
		"INSERT INTO groups VALUES (1, NULL, 'doomed', 'doomed', '2020-01-01'), (2, NULL, 'spared', 'spared', NULL)",
		"INSERT INTO group_deletion_schedules VALUES (1, 1, '2020-01-01')",
		fmt.Sprintf("INSERT INTO projects SELECT n, CASE WHEN n <= %d THEN 1 ELSE 2 END, 'project-' || n FROM generate_series(1, %d) AS n", f.doomed, projects),
		fmt.Sprintf("INSERT INTO issues SELECT n, (n - 1) %% %d + 1, repeat('x', 60) FROM generate_series(1, %d) AS n", projects, projects*issuesPerProject),
		fmt.Sprintf("INSERT INTO notes SELECT n, (n - 1) %% %d + 1, repeat('x', 70) FROM generate_series(1, %d) AS n",
			projects*issuesPerProject, projects*issuesPerProject*notesPerIssue),
	}
}

// rows counts the rows that go with the group, the group included.
func (f forest) rows() int64 { return 1 + f.doomed*(1+issuesPerProject*(1+notesPerIssue)) }

// check reports whether exactly group 2 is left.
func (f forest) check(ctx context.Context, conn *pgx.Conn) error {
	for table, want := range map[string]int64{
		"groups": 1, "projects": f.spared, "issues": f.spared * issuesPerProject, "notes": f.spared * issuesPerProject * notesPerIssue,
	} {
		var have int64
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&have); err != nil {
			return fmt.Errorf("count rows of %s: %w", table, err)
		}
		if have != want {
			return fmt.Errorf("table %s is not as it must be: want %d rows, have %d", table, want, have)
		}
	}
	return nil
}

// Group destroys a group in two ways and measures what that takes, and what others feel of it. The ground has to be one of the
// job that destroys group 1, on behalf of user 1.
func Group(ctx context.Context, g *Ground, o GroupOptions) (_ Report, err error) {
	f := forest{doomed: max(10, int64(1000*o.Scale))}
	f.spared = max(2, f.doomed/10)
	r := &GroupReport{Benchmark: "group", Scale: o.Scale, Rounds: o.Rounds, Projects: f.doomed, Rows: f.rows()}
	if r.Server, err = (&Site{Pool: g.Admin}).server(ctx); err != nil {
		return nil, err
	}
	g.Progress("making %d rows", f.rows()+f.rows()/10)
	data, err := g.template(ctx, groupTables, "", f.fill()...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, data.drop()) }()
	rounds := map[string][]measured{}
	names := []string{nativeCascade, sexton}
	for round := range o.Rounds {
		for i := range names {
			name := names[(i+round)%len(names)]
			g.Progress("round %d of %d, %s", round+1, o.Rounds, name)
			m, err := g.destroy(ctx, data, f, name, nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			rounds[name] = append(rounds[name], m)
		}
	}
	for _, name := range names {
		s := summary(name, f.rows(), rounds[name])
		r.Contenders = append(r.Contenders, GroupContender{
			Contender: name, Seconds: s.Seconds, RowsPerSecond: s.RowsPerSecond, WALBytes: s.WALBytes, Statements: s.Statements, StatementMS: s.StatementMS,
		})
	}
	native, ours := r.Contenders[0], r.Contenders[1]
	r.RatioSeconds, r.RatioWAL = ratio(ours.Seconds, native.Seconds), ratio(float64(ours.WALBytes), float64(native.WALBytes))
	r.RatioLongest = ratio(ours.StatementMS.Max, native.StatementMS.P50)
	if o.Foreground {
		r.Duty = &o.Duty
		r.Foreground, err = g.besideGroup(ctx, data, f, o)
	}
	return r, err
}

// destroy lets a contender work on a fresh copy. The load beside it, if any, is put on the same copy.
func (g *Ground) destroy(ctx context.Context, data *template, f forest, name string, beside *load) (m measured, err error) {
	url, conn, drop, err := g.copyOf(ctx, data)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	watch := stopwatch{work: "DELETE FROM", queue: tombstones}
	work := func(ctx context.Context) (err error) {
		if _, m.took, err = timed(ctx, conn, "DELETE FROM groups WHERE id = 1"); err != nil {
			return fmt.Errorf("delete group: %w", err)
		}
		m.times = []time.Duration{m.took}
		return nil
	}
	if name == sexton {
		duty := fullDuty
		if beside != nil {
			duty = beside.duty
		}
		worker, err := g.Open(ctx, url, "", duty, &watch)
		if err != nil {
			return m, err
		}
		defer worker.Close()
		work = func(ctx context.Context) error {
			began := time.Now()
			_, err := worker.drain(ctx)
			m.took = time.Since(began)
			m.times, _ = watch.take()
			return err
		}
	}
	if name == undisturbed {
		work = func(ctx context.Context) error {
			return sleep.For(ctx, stillness(float64(f.doomed)/1000))
		}
	}
	if err := settle(ctx, conn); err != nil {
		return m, err
	}
	start, err := walPosition(ctx, conn)
	if err != nil {
		return m, err
	}
	if beside != nil {
		err = beside.during(ctx, url, work)
	} else {
		err = work(ctx)
	}
	if err != nil {
		return m, err
	}
	end, err := walPosition(ctx, conn)
	m.wal = end - start
	if err != nil || name == undisturbed {
		return m, err
	}
	return m, f.check(ctx, conn)
}

// use is one transaction of an application on the tables: it reads the notes of some issue and another one, and updates
// that one, in one round trip. Of ten one is about a group that stays.
func (f forest) use(ctx context.Context, conn *pgx.Conn) error {
	issues := (f.doomed + f.spared) * issuesPerProject
	note := 1 + rand.Int64N(issues*notesPerIssue)
	batch := &pgx.Batch{}
	batch.Queue("SELECT id, note FROM notes WHERE issue_id = $1 LIMIT 100", 1+rand.Int64N(issues))
	batch.Queue("SELECT * FROM notes WHERE id = $1", note)
	batch.Queue("UPDATE notes SET note = reverse(note) WHERE id = $1", note)
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("use notes: %w", err)
	}
	return nil
}

// besideGroup measures the load alone and beside each contender.
func (g *Ground) besideGroup(ctx context.Context, data *template, f forest, o GroupOptions) ([]Foreground, error) {
	names := []string{undisturbed, nativeCascade, sexton}
	loads, worked := map[string][]*load{}, map[string][]measured{}
	for round := range o.Rounds {
		for i := range names {
			name := names[(i+round)%len(names)]
			g.Progress("foreground load, round %d of %d, %s", round+1, o.Rounds, name)
			beside := &load{transaction: f.use, duty: o.Duty}
			m, err := g.destroy(ctx, data, f, name, beside)
			if err != nil {
				return nil, fmt.Errorf("%s under load: %w", name, err)
			}
			loads[name], worked[name] = append(loads[name], beside), append(worked[name], m)
		}
	}
	return compareLoads(names, f.rows(), loads, worked), nil
}

// Text writes what was measured, the ratios, and the foreground where it was asked for.
func (r *GroupReport) Text(w io.Writer) {
	_, _ = fmt.Fprintln(w, "contender\tseconds\trows/s\tWAL MB\tstatements\tp50 ms\tp99 ms\tmax ms")
	for _, c := range r.Contenders {
		_, _ = fmt.Fprintf(w, "%s\t%.2f\t%.0f\t%.1f\t%d\t%.1f\t%.1f\t%.1f\n", words(c.Contender), c.Seconds, c.RowsPerSecond, float64(c.WALBytes)/1e6,
			c.Statements, c.StatementMS.P50, c.StatementMS.P99, c.StatementMS.Max)
	}
	_, _ = fmt.Fprintf(w, "\nsexton / native\ttime %.2f\tlongest statement %.4f\tWAL %.2f\n", r.RatioSeconds, r.RatioLongest, r.RatioWAL)
	if r.Duty != nil {
		_, _ = fmt.Fprint(w, foregroundHead)
		foregroundText(w, "group", r.Foreground)
	}
	_, _ = fmt.Fprintf(w, "\n%d projects, %d rows; median of %d interleaved rounds, each on a fresh copy of the data; scale %g; %s\n",
		r.Projects, r.Rows, r.Rounds, r.Scale, r.Server)
	if r.Duty != nil {
		foregroundNote(w, "the group deleted", *r.Duty, r.Foreground)
	}
}
