package orphans

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
)

const (
	// Batch is the default number of keys that one statement of an audit reads.
	Batch       = 1_000
	mostBacklog = 1_000_000
	// mostRows limits the rows that are counted per batch. mostSamples limits the keys in
	// a report.
	mostRows    = 10_000
	mostSamples = 10
)

// Auditor searches for orphans. It reads the child's column key by key, at most Batch
// keys in one statement, and runs each statement in its own transaction. It does not see
// keys that change after it has read them.
type Auditor struct {
	// DB is the parents' database. Remotes are the other databases that can be reached,
	// by name.
	DB      pgcatalog.Beginner
	Remotes map[string]pgcatalog.Beginner
	Names   pgcatalog.Names
	Bounds  loosefk.Bounds
	// Batch is the number of keys per statement.
	Batch int
	// Backlog is the number of pending tombstones above which a parent is not audited. 0
	// stands for mostBacklog. Tombstones have no index by key, because every deletion of
	// a parent would pay for it. So each batch with suspects reads all tombstones of the
	// parent, which takes some tenths of a second for a million.
	Backlog int64
	// Repair inserts tombstones for the orphaned keys. A key with orphans of several
	// definitions gets one tombstone, and counts for the definition that is audited
	// first.
	Repair bool
	// Wake is called in each transaction that inserted tombstones.
	Wake loosefk.Waker
}

// Report is the result of an audit for one definition.
type Report struct {
	// Definition is the key of the definition in the file, such as issues[0]. Child and
	// Parent are shown to users.
	Definition string `json:"definition"`
	Child      string `json:"child"`
	// ChildDatabase is the child's database if it is not the parent's.
	ChildDatabase string `json:"child_database,omitempty"`
	Column        string `json:"column"`
	Parent        string `json:"parent"`
	// CheckedKeys counts distinct values of the column, without NULL.
	CheckedKeys  int64 `json:"checked_keys"`
	OrphanedKeys int64 `json:"orphaned_keys"`
	// OrphanedRows counts at most mostRows per batch of keys. RowsCapped reports that
	// there are more orphaned rows.
	OrphanedRows int64 `json:"orphaned_rows"`
	RowsCapped   bool  `json:"rows_capped"`
	// Samples are the first orphaned keys, in text form.
	Samples []string `json:"samples"`
	// UncheckedKeys counts keys without a parent whose children could not be read within
	// the statement timeout.
	UncheckedKeys int64 `json:"unchecked_keys"`
	// RepairedKeys counts keys for which a tombstone was inserted.
	RepairedKeys int64 `json:"repaired_keys"`
	// Skipped is the reason for which the definition cannot be audited: it does not fit
	// its table, or a database cannot be reached.
	Skipped string `json:"skipped,omitempty"`
	// Error is the error that ended this audit: table, SQLSTATE and message. Other audits
	// continue.
	Error string `json:"error,omitempty"`
}

// NewReport returns an empty report of a definition.
func NewReport(parent *loosefk.Parent, reference *loosefk.Reference) Report {
	d := reference.Definition
	report := Report{
		Definition: d.Key, Child: reference.Child.Label(), Column: d.ColumnList(), Parent: parent.Label(),
		Samples: []string{},
	}
	if reference.Remote {
		report.ChildDatabase = reference.Database
	}
	return report
}

// Audit audits one definition. Errors of the definition's tables are in the report. The
// returned error is an error of the connection or of ctx. The report is also valid with
// an error.
func (a Auditor) Audit(ctx context.Context, parent *loosefk.Parent, reference *loosefk.Reference) (Report, error) {
	r := run{Auditor: a, parent: keyed{parent}, reference: reference, report: NewReport(parent, reference)}
	if r.report.Skipped = a.skipReason(reference); r.report.Skipped != "" {
		return r.report, nil
	}
	if err := r.walk(ctx); err != nil {
		f := batch.FaultIn(err, reference.Child.Label()).WithBlocker(r.holder)
		if f.Verdict == batch.Fatal || ctx.Err() != nil {
			return r.report, fmt.Errorf("audit %s: %w", reference.Definition.Key, err)
		}
		r.report.Error = f.Text()
	}
	return r.report, nil
}

// run is the state of one audit.
type run struct {
	Auditor

	parent    keyed
	reference *loosefk.Reference
	report    Report
	// backlogChecked reports that the parent's backlog was counted.
	backlogChecked bool
	// holder is the session that holds the lock which a repair waited for.
	holder string
}

// walk reads the column from its beginning to its end. After a timeout it uses fewer keys
// for all further statements.
func (r *run) walk(ctx context.Context) error {
	var after *string
	for size := r.Batch; ; {
		found, err := r.next(ctx, after, size)
		if err != nil && size > 1 && batch.Judge(err).Verdict == batch.Timeout {
			size = max(1, size/8)
			continue
		}
		if err != nil {
			return err
		}
		r.report.CheckedKeys += found.keys
		if len(found.suspects) > 0 {
			if err := r.checkSuspects(ctx, found.suspects); err != nil || r.report.Error != "" {
				return err
			}
		}
		if found.stops < size {
			return nil
		}
		after = &found.last
	}
}

// segment is a part of the column that one statement has read.
type segment struct {
	// stops is the number of keys that the statement has returned. last is the last
	// returned key. A composite key with NULL in a column is a stop, but is not counted
	// in keys.
	stops int
	last  string
	keys  int64
	// suspects are the keys without a parent.
	suspects []string
}

// next reads at most size keys after the key in after, or the first ones if after is nil.
func (r *run) next(ctx context.Context, after *string, size int) (found segment, err error) {
	err = r.inChildren(ctx, byIndex, func(tx pgx.Tx) error {
		sql, args := r.parent.walkStatement(r.reference, after, size)
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		var lacksParent *bool
		_, err = pgx.ForEachRow(rows, []any{&found.last, &lacksParent}, func() error {
			found.stops++
			if lacksParent != nil {
				found.keys++
			}
			if lacksParent != nil && *lacksParent {
				found.suspects = append(found.suspects, found.last)
			}
			return nil
		})
		return err
	})
	if err == nil && len(found.suspects) > 0 && r.reference.Remote {
		found.suspects, err = r.withoutParent(ctx, found.suspects)
	}
	return found, err
}

// checkSuspects counts and repairs the orphaned keys among keys without a parent. After a
// timeout it retries each half. A single key that times out is left unchecked.
func (r *run) checkSuspects(ctx context.Context, keys []string) error {
	if !r.backlogChecked {
		if err := r.checkBacklog(ctx); err != nil || r.report.Error != "" {
			return err
		}
		r.backlogChecked = true
	}
	orphans, rows, err := r.orphans(ctx, keys)
	if err == nil && r.Repair && len(orphans) > 0 {
		err = r.repair(ctx, orphans)
	}
	switch {
	case err != nil && batch.Judge(err).Verdict == batch.Timeout && len(keys) == 1:
		r.report.UncheckedKeys++
		return nil
	case err != nil && batch.Judge(err).Verdict == batch.Timeout:
		half := len(keys) / 2
		if err := r.checkSuspects(ctx, keys[:half]); err != nil {
			return err
		}
		return r.checkSuspects(ctx, keys[half:])
	case err != nil:
		return err
	}
	r.report.OrphanedKeys += int64(len(orphans))
	r.report.OrphanedRows += min(rows, mostRows)
	r.report.RowsCapped = r.report.RowsCapped || rows > mostRows
	r.report.Samples = append(r.report.Samples, orphans[:min(len(orphans), mostSamples-len(r.report.Samples))]...)
	return nil
}

// checkBacklog ends the audit with an error in the report if the parent has more pending
// tombstones than Backlog.
func (r *run) checkBacklog(ctx context.Context) error {
	most := cmp.Or(r.Backlog, mostBacklog)
	waiting, err := loosefk.Tombstones{DB: r.DB, Names: r.Names, Bounds: r.Bounds}.Count(ctx, r.parent.Recorded, most+1)
	if waiting > most {
		r.report.Error = fmt.Sprintf("more than %d tombstones of %s are pending: audit again when they have been processed", most,
			r.parent.Recorded)
	}
	return err
}

// countRows counts the children of keys, up to mostRows + 1.
func (r *run) countRows(ctx context.Context, tx pgx.Tx, keys []string) (rows int64, err error) {
	sql, args := r.parent.orphanRowsStatement(r.reference, keys, mostRows+1)
	err = tx.QueryRow(ctx, sql, args...).Scan(&rows)
	return rows, err
}

// byIndex is the SQL of planner settings with which a walk reads one index entry per key,
// even if a table has no statistics yet.
const byIndex = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off"

// byHash is the SQL of planner settings with which a statement finds the tombstones of
// its keys with a hash join. The join reads the tombstones only once. Without the
// settings, the planner may expect few tombstones, because most were inserted after the
// last ANALYZE. Children and parents are found in subplans, to which enable_nestloop does
// not apply.
const byHash = "SET LOCAL enable_nestloop = off; SET LOCAL enable_seqscan = off"

// settledAgain calls settled in a transaction that inserts tombstones afterwards. It
// resets the planner settings with a rollback to a savepoint, because they must not apply
// to the application's triggers on tombstones.
func (r *run) settledAgain(ctx context.Context, tx pgx.Tx, keys []string) ([]string, error) {
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := savepoint.Exec(ctx, byHash); err != nil {
		return nil, err
	}
	if keys, err = r.settled(ctx, savepoint, keys); err != nil {
		return nil, err
	}
	return keys, savepoint.Rollback(ctx)
}

// repair inserts tombstones for keys. Only one audit repairs at a time, so that no two
// audits insert a tombstone for the same key. A separate statement takes the lock, so
// that the snapshot of the next statement has the tombstones of the other audit.
func (r *run) repair(ctx context.Context, keys []string) error {
	var repaired int64
	lock, waits := "sexton audit of "+r.Names.Tracked, false
	err := r.Bounds.Write(ctx, r.DB, func(tx pgx.Tx) error {
		if err := r.extendIdleTimeout(ctx, tx); err != nil {
			return err
		}
		waits = true
		if _, err := tx.Exec(ctx, "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1, 0))",
			lock); err != nil {
			return err
		}
		waits = false
		// Another audit may have inserted tombstones meanwhile, and a pass may have
		// deleted the children.
		keys, err := r.settledAgain(ctx, tx, keys)
		if err == nil && len(keys) > 0 && r.reference.Remote {
			keys, err = r.withChild(ctx, keys)
		}
		if err != nil || len(keys) == 0 {
			return err
		}
		sql, args := r.parent.repairStatement(r.Names, keys)
		tag, err := tx.Exec(ctx, sql, args...)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		repaired = tag.RowsAffected()
		return r.Wake(ctx, tx)
	})
	switch {
	case err == nil:
		r.report.RepairedKeys += repaired
	case waits && batch.Judge(err).Lock():
		return errors.Join(err, r.Bounds.Read(ctx, r.DB, "", func(tx pgx.Tx) (err error) {
			r.holder, err = batch.Holder(ctx, tx, lock)
			return err
		}))
	}
	return err
}
