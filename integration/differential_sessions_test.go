package integration

import (
	"slices"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"
)

// session is a transaction that begins before parents are deleted and ends later. In the
// twin it runs completely before that deletion.
type session struct {
	conn  *pgx.Conn
	begin string
	// early statements run before the deletion. late statements run after it and may
	// insert late children.
	early, late []string
	// end is COMMIT or ROLLBACK. If name is set, the transaction is prepared under that
	// name first.
	end  string
	name string
	// lateAt and endAt are the stages in which the late statements run and the session
	// ends.
	lateAt, endAt int
	// deletes is true if the session creates tombstones. Their created_at is the start of
	// the transaction, so they may sort before tombstones that a run has already read,
	// and then wait for the next run.
	deletes bool

	// lateDone is true if the late statements have run. ended is true if the transaction
	// has ended.
	lateDone, ended bool
}

// stages is the number of stages: before the first run of the worker, after the first
// run, and after the second run.
const stages = 3

// forecast describes the effect of the last deletions, computed before any session runs.
type forecast struct {
	deletes []string
	// doomed holds the numbers of the rows that will be deleted, by table.
	doomed [][]int
	// affected holds rows that will be deleted or changed because of their parents.
	// unreached holds rows that do not change and to which no row refers.
	affected, unreached []rowID
	claimed             map[rowID]bool
}

// drawDeletes draws statements that delete rows by their keys, and returns them with
// their forecast.
func (c *scenario) drawDeletes() *forecast {
	f := &forecast{claimed: map[rowID]bool{}, doomed: make([][]int, len(c.schema.tables))}
	direct := map[rowID]bool{}
	c.readTwin()
	for i, t := range c.schema.tables {
		numbers := c.numbers(i)
		if len(numbers) == 0 || !c.schema.isParent(t) {
			continue
		}
		drawn := rapid.SliceOfNDistinct(rapid.SampledFrom(numbers), 0, (len(numbers)+1)/2, rapid.ID).Draw(c.rt,
			"last deletes")
		if len(drawn) > 0 {
			f.deletes = append(f.deletes, t.delete(drawn...))
		}
		for _, n := range drawn {
			direct[rowID{i, n}] = true
		}
	}
	before, referred := c.copyRows()
	c.exec(c.native, "native", "BEGIN")
	f.deletes = slices.DeleteFunc(f.deletes, func(sql string) bool { return !c.runNatively(sql) })
	after := c.rows(c.native)
	c.exec(c.native, "native", "ROLLBACK")

	survives := map[rowID]string{}
	for _, r := range after {
		survives[r.rowID] = r.text
	}
	for _, r := range before {
		text, exists := survives[r.rowID]
		if !exists {
			f.doomed[r.table] = append(f.doomed[r.table], r.number)
		}
		switch {
		case direct[r.rowID]:
		case text != r.text:
			f.affected = append(f.affected, r.rowID)
		case !referred[r.rowID]:
			f.unreached = append(f.unreached, r.rowID)
		}
	}
	return f
}

// unclaimed returns the given rows that exist and that no session has claimed.
func (c *scenario) unclaimed(f *forecast, places []rowID) []rowID {
	return slices.DeleteFunc(slices.Clone(places), func(p rowID) bool {
		return f.claimed[p] || !slices.ContainsFunc(c.alive, func(r row) bool { return r.rowID == p && !r.marked })
	})
}

// drawSession draws a transaction and runs it in the twin.
func (c *scenario) drawSession(f *forecast, conn *pgx.Conn, name string) *session {
	s := &session{
		conn:  conn,
		begin: rapid.SampledFrom([]string{"BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ"}).Draw(c.rt, "begin"),
		end:   rapid.SampledFrom([]string{"COMMIT", "COMMIT", "ROLLBACK"}).Draw(c.rt, "end of session"),
	}
	if c.twoPhase && rapid.IntRange(0, 2).Draw(c.rt, "prepared") == 2 {
		s.name = name
		c.mix.count("session prepared, " + s.end)
	}
	s.lateAt = rapid.IntRange(0, stages-1).Draw(c.rt, "late statements at")
	s.endAt = rapid.IntRange(s.lateAt, stages-1).Draw(c.rt, "end at")
	if s.begin != "BEGIN" {
		c.mix.count("session in repeatable read")
	}
	c.exec(c.native, "native", "BEGIN")
	alive := c.alive
	for range rapid.IntRange(0, 2).Draw(c.rt, "early statements") {
		s.early = append(s.early, c.drawStep(s, func() string { return c.drawEarly(f, s) })...)
	}
	for range rapid.IntRange(0, 3).Draw(c.rt, "late statements") {
		s.late = append(s.late, c.drawStep(s, func() string { return c.drawLate(f, s) })...)
	}
	c.exec(c.native, "native", s.end)
	if s.end == "ROLLBACK" {
		c.alive = alive
	}
	return s
}

// drawStep draws one statement, which may be rolled back to a savepoint immediately.
func (c *scenario) drawStep(s *session, draw func() string) []string {
	// The savepoint is set before the draw, because the effects of the draw must be
	// undone together with the statement.
	undone := rapid.IntRange(0, 5).Draw(c.rt, "undone") == 5
	alive, deletes := c.alive, s.deletes
	if undone {
		c.exec(c.native, "native", "SAVEPOINT step")
	}
	sql := draw()
	if sql != "" && !c.runNatively(sql) {
		sql, s.deletes = "", deletes
	}
	if undone {
		c.exec(c.native, "native", "ROLLBACK TO step")
		c.alive, s.deletes = alive, deletes
	} else {
		c.readTwinAfter(sql)
	}
	switch {
	case sql == "":
		return nil
	case undone:
		c.mix.count("session statement undone")
		return []string{"SAVEPOINT step", sql, "ROLLBACK TO step"}
	}
	return []string{sql}
}

// drawEarly draws a statement for a row that the deletion affects. The statement runs
// before the deletion and locks the row, so that the worker must wait for that lock.
func (c *scenario) drawEarly(f *forecast, s *session) string {
	candidates := c.unclaimed(f, f.affected)
	if len(candidates) == 0 {
		return ""
	}
	p := rapid.SampledFrom(candidates).Draw(c.rt, "affected row")
	f.claimed[p] = true
	t := c.schema.tables[p.table]
	kind := rapid.SampledFrom([]string{
		"early move", "early lock", "early delete", "early share",
		"early update",
	}).Draw(c.rt, "early statement")
	if kind == "early delete" && !slices.Contains(f.doomed[p.table], p.number) {
		// If the deletion keeps this row, other sessions may rely on its descendants. So
		// the row is updated instead of deleted.
		kind = "early update"
	}
	c.mix.count(kind)
	switch kind {
	case "early lock":
		return "SELECT FROM " + t.sql() + " WHERE " + t.matchKeys(p.number) + " FOR UPDATE"
	case "early share":
		return "SELECT FROM " + t.sql() + " WHERE " + t.matchKeys(p.number) + " FOR KEY SHARE"
	case "early move":
		// The new parents must be kept. Otherwise the deletion would also affect
		// descendants of this row, on which other sessions may rely.
		return t.setParents(p.number, c.drawRow(t, c.livingRowsExcept(f.doomed)).targets)
	case "early delete":
		s.deletes = true
		return t.delete(p.number)
	}
	return t.setNote(p.number, 100+p.number)
}

// drawLate draws a statement that runs after the parents were deleted, mostly one that
// inserts a child of such a parent.
func (c *scenario) drawLate(f *forecast, s *session) string {
	kind := rapid.SampledFrom([]string{
		"late insert", "late move", "late insert", "late delete",
		"late update",
	}).Draw(c.rt, "late statement")
	candidates := c.unclaimed(f, f.unreached)
	if len(candidates) == 0 || s.begin != "BEGIN" {
		// A transaction with an older snapshot would fail on rows that the worker has
		// changed since then.
		kind = "late insert"
	}
	if kind == "late insert" {
		// The session does not see rows of other sessions, so it inserts a new row.
		t := c.drawChildTable(f)
		c.mix.count(kind)
		return t.insert(c.drawRow(t, c.drawParentKeys(f)))
	}
	p := rapid.SampledFrom(candidates).Draw(c.rt, "unreached row")
	f.claimed[p] = true
	t := c.schema.tables[p.table]
	switch {
	case kind == "late delete":
		s.deletes = true
		c.mix.count(kind)
		return t.delete(p.number)
	case kind == "late move" && len(t.references) > 0:
		c.mix.count(kind)
		return t.setParents(p.number, c.drawRow(t, c.drawParentKeys(f)).targets)
	}
	c.mix.count("late update")
	return t.setNote(p.number, 100+p.number)
}

// drawChildTable draws a table with a reference to doomed parents. If no table has such a
// reference, drawChildTable draws any table.
func (c *scenario) drawChildTable(f *forecast) *table {
	tables := slices.DeleteFunc(slices.Clone(c.schema.tables), func(t *table) bool {
		return !slices.ContainsFunc(t.references,
			func(r *reference) bool { return len(f.doomed[slices.Index(c.schema.tables, r.parent)]) > 0 })
	})
	if len(tables) == 0 {
		tables = c.schema.tables
	}
	return rapid.SampledFrom(tables).Draw(c.rt, "table")
}

// drawParentKeys returns the numbers of the rows of each table that new references may
// use. In most cases these are only the doomed rows, if the table has any.
func (c *scenario) drawParentKeys(f *forecast) [][]int {
	numbers := c.livingRows()
	for i := range numbers {
		doomed := slices.DeleteFunc(slices.Clone(numbers[i]),
			func(n int) bool { return !slices.Contains(f.doomed[i], n) })
		if len(doomed) > 0 && rapid.IntRange(0, 3).Draw(c.rt, "fated") < 3 {
			numbers[i] = doomed
		}
	}
	return numbers
}

// livingRowsExcept returns the numbers of the existing rows of each table without the
// given ones.
func (c *scenario) livingRowsExcept(some [][]int) [][]int {
	numbers := c.livingRows()
	for i := range numbers {
		numbers[i] = slices.DeleteFunc(numbers[i], func(n int) bool { return slices.Contains(some[i], n) })
	}
	return numbers
}
