package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/jobrun"
	"sexton/internal/problem"
)

// passRuntime is the time limit of a run if the measurement has no time limit.
const passRuntime = 50 * time.Second

// DrainOptions selects what Drain measures.
type DrainOptions struct {
	// Sets holds names of data sets. Scale is a fraction of the full size of the data
	// sets.
	Sets  []string
	Scale float64
	// Rounds is the number of measurements per contender. Each round begins with a
	// different contender.
	Rounds int
	// Connections is the number of sessions of Sexton's runs. 0 means the default of the
	// configuration.
	Connections int
	// Limit is the time for which each contender works on the data set Slow.
	Limit time.Duration
}

// Drain deletes parents and measures how fast their children are deleted: by Sexton, by
// one statement, and by ON DELETE CASCADE or SET NULL. For the data set Slow, it measures
// the rows that Sexton deletes in a fixed time, with one and with several connections.
// For the data set Retention, it deletes expired rows instead of parents. After each
// measurement, it checks that exactly the expected rows were deleted or changed.
func (o *DrainOptions) Drain(ctx context.Context, g *Cluster) (*Report, error) {
	var found []comparison
	for _, name := range o.Sets {
		set, err := newDataSet(name, o.Scale)
		if err != nil {
			return nil, err
		}
		one, err := g.compare(ctx, set, *o)
		if err != nil {
			return nil, fmt.Errorf("measure data set %s: %w", name, err)
		}
		found = append(found, one)
	}
	return drainReport(g.Server, *o, found), nil
}

// The constants are the names of the contenders.
const (
	oneStatement  = "one_statement"
	nativeCascade = "native"
	oneConnection = "sexton_1_connection"
	sexton        = "sexton"
)

// contender is one method to delete the children of deleted parents.
type contender struct {
	name string
	// prepare runs before the parents are deleted. It may be nil.
	prepare func(ctx context.Context, c *dataCopy) error
	// ready runs after the DELETE of the parents and before drain. Its time is not
	// measured. It may be nil.
	ready func(ctx context.Context, c *dataCopy) error
	// drain deletes the children. It is nil if the DELETE of the parents also deletes the
	// children.
	drain func(ctx context.Context, c *dataCopy) error
}

// contenders returns the methods that are compared on a data set.
func (o DrainOptions) contenders(s dataSet) []contender {
	worker := func(name string, connections int) contender {
		settings, limit := WorkerOptions{Connections: connections, Runtime: passRuntime}, time.Duration(0)
		if s.Name == Slow {
			settings.Runtime, limit = o.Limit, o.Limit
		}
		return contender{
			name:    name,
			prepare: func(ctx context.Context, c *dataCopy) error { return c.openWorker(ctx, settings) },
			drain:   func(ctx context.Context, c *dataCopy) error { return c.worker.drain(ctx, limit) },
		}
	}
	switch s.Name {
	case Slow:
		return []contender{worker(oneConnection, 1), worker(sexton, o.Connections)}
	case Retention:
		return []contender{{name: oneStatement, drain: deleteOld}, worker(sexton, o.Connections)}
	}
	return []contender{
		{name: oneStatement, ready: analyzeTombstones, drain: drainByOneStatement},
		{name: nativeCascade, prepare: addForeignKeys},
		worker(sexton, o.Connections),
	}
}

// analyzeTombstones updates the statistics, so that the planner chooses the best join for
// the single statement.
func analyzeTombstones(ctx context.Context, c *dataCopy) error {
	_, err := c.conn.Exec(ctx, "ANALYZE "+tombstones)
	return problem.Doing(err, "analyze tombstones")
}

// drainByOneStatement runs one statement per child table in one transaction. Each
// statement joins the children to the tombstones.
func drainByOneStatement(ctx context.Context, c *dataCopy) error {
	change := "DELETE FROM %s AS child USING"
	if c.set.Nullifies() {
		change = "UPDATE %s AS child SET parent_id = NULL FROM"
	}
	return pgx.BeginFunc(ctx, c.conn, func(pgx.Tx) error {
		for _, table := range c.set.Tables {
			sql := fmt.Sprintf(change, table) + " " + tombstones +
				" AS tombstone WHERE child.parent_id = tombstone.primary_key_value"
			if _, err := c.conn.Exec(ctx, sql); err != nil {
				return fmt.Errorf("change %s: %w", table, err)
			}
		}
		return nil
	})
}

// deleteOld deletes the expired rows of the data set Retention with one statement.
func deleteOld(ctx context.Context, c *dataCopy) error {
	_, err := c.conn.Exec(ctx, "DELETE FROM children WHERE at < now() - interval '30 days'")
	return problem.Doing(err, "delete old rows")
}

// addForeignKeys adds native foreign keys and disables the tracking trigger.
func addForeignKeys(ctx context.Context, c *dataCopy) error {
	action := "CASCADE"
	if c.set.Nullifies() {
		action = "SET NULL"
	}
	statements := []string{"ALTER TABLE parents DISABLE TRIGGER sexton_track"}
	for _, table := range c.set.Tables {
		statements = append(statements,
			fmt.Sprintf("ALTER TABLE %s ADD FOREIGN KEY (parent_id) REFERENCES parents ON DELETE %s", table, action))
	}
	for _, statement := range statements {
		if _, err := c.conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("add foreign keys: %w", err)
		}
	}
	return nil
}

// comparison holds the results of all contenders on one data set.
type comparison struct {
	set dataSet
	// rows is the number of children of the deleted parents.
	rows     int64
	outcomes []outcome
}

// outcome holds the medians of all rounds of one contender.
type outcome struct {
	measured

	name string
}

// measured holds the measured values of one contender in one round.
type measured struct {
	// took is the time in which the children were deleted, and deleteTook is the duration
	// of the DELETE of the parents.
	took, deleteTook time.Duration
	// rows is the number of children that were deleted or changed.
	rows int64
	// wal is the number of WAL bytes, including the DELETE of the parents.
	wal int64
}

func (m measured) rowsPerSecond() float64 { return round(float64(m.rows)/m.took.Seconds(), 0) }

// compare measures all contenders on copies of the same data set.
func (g *Cluster) compare(ctx context.Context, s dataSet, o DrainOptions) (comparison, error) {
	found := comparison{set: s}
	g.progressf("%s: inserting the rows", s.Name)
	err := g.withTemplate(ctx, s, func(template string) error {
		all := o.contenders(s)
		rounds := make([][]measured, len(all))
		for round := range o.Rounds {
			for i := range all {
				index := (i + round) % len(all)
				g.progressf("%s: round %d of %d, %s", s.Name, round+1, o.Rounds, all[index].name)
				m, rows, err := g.measure(ctx, template, s, all[index])
				if err != nil {
					return fmt.Errorf("%s: %w", all[index].name, err)
				}
				found.rows, rounds[index] = rows, append(rounds[index], m)
			}
		}
		for i, c := range all {
			found.outcomes = append(found.outcomes, outcome{medians(rounds[i]), c.name})
		}
		return nil
	})
	return found, err
}

func medians(rounds []measured) measured {
	var took, deleteTook []time.Duration
	var rows, wal []int64
	for _, m := range rounds {
		took, deleteTook = append(took, m.took), append(deleteTook, m.deleteTook)
		rows, wal = append(rows, m.rows), append(wal, m.wal)
	}
	return measured{took: median(took), deleteTook: median(deleteTook), rows: median(rows), wal: median(wal)}
}

// dataCopy is a copy of a data set, on which one contender works.
type dataCopy struct {
	cluster *Cluster
	set     dataSet
	url     string
	conn    *pgx.Conn
	// worker is nil unless Sexton is the contender.
	worker *Worker
}

func (c *dataCopy) openWorker(ctx context.Context, o WorkerOptions) (err error) {
	c.worker, err = c.cluster.open(ctx, c.url, c.set, o)
	return err
}

// measure measures one contender on a new copy of the template. rows is the number of
// children of the deleted parents.
func (g *Cluster) measure(ctx context.Context, template string, s dataSet,
	by contender,
) (m measured, rows int64, err error) {
	_, url, drop, err := g.create(ctx, template)
	if err != nil {
		return m, 0, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	conn, closeConn, err := connect(ctx, url)
	if err != nil {
		return m, 0, err
	}
	defer closeConn()
	c := &dataCopy{cluster: g, set: s, url: url, conn: conn}
	before, err := s.count(ctx, conn)
	if err != nil {
		return m, 0, err
	}
	if by.prepare != nil {
		if err := by.prepare(ctx, c); err != nil {
			return m, 0, err
		}
	}
	if c.worker != nil {
		defer c.worker.Close()
	}
	if err := prepareCopy(ctx, conn); err != nil {
		return m, 0, err
	}
	if m, err = c.run(ctx, by); err != nil {
		return m, 0, err
	}
	m.rows, err = s.check(ctx, conn, before, c.worker != nil)
	return m, targetsOf(before), err
}

// run deletes the parents, calls the contender, and returns the measured times and WAL
// bytes.
func (c *dataCopy) run(ctx context.Context, by contender) (m measured, err error) {
	start, err := walPosition(ctx, c.conn)
	if err != nil {
		return m, err
	}
	began := time.Now()
	if _, err := c.conn.Exec(ctx, "DELETE FROM parents WHERE id <= $1", c.set.Targets); err != nil {
		return m, fmt.Errorf("delete parents: %w", err)
	}
	m.deleteTook = time.Since(began)
	m.took = m.deleteTook
	if by.ready != nil {
		if err := by.ready(ctx, c); err != nil {
			return m, err
		}
	}
	if by.drain != nil {
		began := time.Now()
		if err := by.drain(ctx, c); err != nil {
			return m, err
		}
		m.took = time.Since(began)
	}
	end, err := walPosition(ctx, c.conn)
	m.wal = end - start
	return m, err
}

// content holds numbers and a sum that describe the rows of a child table.
type content struct {
	// rows is the number of all rows. referring is the number of rows with a parent ID.
	// targets is the number of children of the targets.
	rows, referring, targets int64
	// sparedSum is the sum of the IDs of the children of spared parents. It shows whether
	// these children have changed.
	sparedSum int64
}

// count returns the content of each child table.
func (s dataSet) count(ctx context.Context, conn *pgx.Conn) (map[string]content, error) {
	found := map[string]content{}
	for _, table := range s.Tables {
		var c content
		err := conn.QueryRow(ctx, `SELECT count(*), count(parent_id), count(*) FILTER (WHERE parent_id <= $1),
			coalesce(sum(id) FILTER (WHERE parent_id > $1), 0)::bigint FROM `+table, s.Targets).Scan(&c.rows, &c.referring, &c.targets, &c.sparedSum)
		if err != nil {
			return nil, fmt.Errorf("count rows of %s: %w", table, err)
		}
		found[table] = c
	}
	return found, nil
}

func targetsOf(tables map[string]content) (n int64) {
	for _, c := range tables {
		n += c.targets
	}
	return n
}

// check returns the number of children that were deleted or changed. It returns an error
// if other rows have changed, if children of the targets are left, or if Sexton left
// tombstones. For the data set Slow, children and tombstones may be left.
func (s dataSet) check(ctx context.Context, conn *pgx.Conn, before map[string]content, bySexton bool) (int64, error) {
	if bySexton && s.Name != Slow {
		var remaining int64
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM "+tombstones).Scan(&remaining); err != nil {
			return 0, fmt.Errorf("count tombstones: %w", err)
		}
		if remaining > 0 {
			return 0, fmt.Errorf("%d tombstones are left after the last run", remaining)
		}
	}
	after, err := s.count(ctx, conn)
	if err != nil {
		return 0, err
	}
	for table, want := range before {
		want.targets = 0
		if s.Name == Slow {
			want.targets = after[table].targets
		}
		changed := before[table].targets - want.targets
		want.referring -= changed
		if !s.Nullifies() {
			want.rows -= changed
		}
		if after[table] != want {
			return 0, fmt.Errorf("table %s has unexpected rows: want %+v, have %+v", table, want, after[table])
		}
	}
	return targetsOf(before) - targetsOf(after), nil
}

// outcomeOf returns the outcome of the named contender, or nil.
func (c comparison) outcomeOf(name string) *outcome {
	for i := range c.outcomes {
		if c.outcomes[i].name == name {
			return &c.outcomes[i]
		}
	}
	return nil
}

// ratioTo divides a figure of Sexton by the same figure of another contender. It returns
// nil if one of the two was not measured.
func (c comparison) ratioTo(other string, figure func(measured) float64) any {
	one, base := c.outcomeOf(sexton), c.outcomeOf(other)
	if one == nil || base == nil {
		return nil
	}
	return ratio(figure(one.measured), figure(base.measured))
}

// ratios returns the figures that compare Sexton with the other contenders. For rows per
// second, a larger ratio is better for Sexton.
func (c comparison) ratios() Row {
	deleteMS := func(m measured) float64 { return jobrun.Milliseconds(m.deleteTook) }
	wal := func(m measured) float64 { return float64(m.wal) }
	return Row{
		{"set", "set", "%s", c.set.Name},
		{"ratio_to_one_statement", "sexton / one statement", "%.2f", c.ratioTo(oneStatement, measured.rowsPerSecond)},
		{"ratio_to_native", "/ native", "%.2f", c.ratioTo(nativeCascade, measured.rowsPerSecond)},
		{"ratio_to_one_connection", "/ one connection", "%.2f", c.ratioTo(oneConnection, measured.rowsPerSecond)},
		// The durations of the DELETE of the parents are compared, because the
		// application waits and holds locks during this statement.
		{"ratio_parent_delete_to_native", "DELETE / native", "%.4f", c.ratioTo(nativeCascade, deleteMS)},
		{"ratio_wal_to_native", "WAL / native", "%.2f", c.ratioTo(nativeCascade, wal)},
		{"parents", "parents", "%d", c.set.Targets},
		{"rows", "rows", "%d", c.rows},
	}
}

func (o outcome) figures() Row {
	return append(variantFigure("contender", o.name), Row{
		{"seconds", "seconds", "%.2f", round(o.took.Seconds(), 4)},
		{"rows", "rows", "%d", o.rows},
		{"rows_per_second", "rows/s", "%.0f", o.rowsPerSecond()},
		{"parent_delete_ms", "DELETE ms", "%.1f", jobrun.Milliseconds(o.deleteTook)},
		{"wal_bytes", "", "", o.wal},
		{"", "WAL MB", "%.1f", float64(o.wal) / 1e6},
	}...)
}

func drainReport(server Server, o DrainOptions, found []comparison) *Report {
	var connections any
	if o.Connections > 0 {
		connections = o.Connections
	}
	var sets, contenders, ratios []Row
	for _, c := range found {
		var outcomes []Row
		for _, one := range c.outcomes {
			outcomes = append(outcomes, one.figures())
			contenders = append(contenders, append(Row{{"", "set", "%s", c.set.Name}}, one.figures()...))
		}
		ratios = append(ratios, c.ratios())
		sets = append(sets, append(c.ratios(), Figure{"contenders", "", "", outcomes}))
	}
	r := &Report{Row: Row{
		{"benchmark", "", "", "drain"},
		{"server", "", "", server},
		{"scale", "", "", o.Scale},
		{"rounds", "", "", o.Rounds},
		{"connections", "", "", connections},
		{"sets", "", "", sets},
	}}
	r.show(contenders...)
	r.show(ratios...)
	r.notef("median of %d interleaved rounds, each on a new copy of the data; scale %g; %s", o.Rounds, o.Scale, server)
	for _, c := range found {
		if c.set.Name == Slow {
			r.notef("slow: rows deleted in runs of %s; each row takes 20 ms", o.Limit)
		}
	}
	return r
}
