package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/blobstore"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/doctor"
	"sexton/internal/extdiff"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/problem"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// diffTable is where diffs wait to be moved, removalTable where objects wait to be removed after their diffs.
const (
	diffTable    = "merge_request_diffs"
	removalTable = "external_diff_removals"
)

// probeTimeout bounds doctor's look at the store.
const probeTimeout = 30 * time.Second

// readDiffs reads what is left to be moved, and to be removed, a bounded part of it. Nothing tells since when a diff waits.
func readDiffs(ctx context.Context, db database.Database) ([]deletionTable, error) {
	backlog, err := extdiff.ReadBacklog(ctx, db.Pool, db.Names)
	if err != nil {
		return nil, fmt.Errorf("read backlog of database %s: %w", db.Name, err)
	}
	removals, err := extdiff.ReadRemovals(ctx, db.Pool, db.Names)
	if err != nil {
		return nil, fmt.Errorf("read backlog of database %s: %w", db.Name, err)
	}
	return []deletionTable{
		{Table: diffTable, Database: db.Name, Pending: backlog.Pending, Capped: backlog.Capped, Diffs: &backlog},
		{
			Table: removalTable, Database: db.Name, Pending: removals.Pending, Capped: removals.Capped,
			OldestAgeSeconds: removals.OldestAge.Seconds(), Deferred: removals.Deferred,
			DeferredUntil: removals.DeferredUntil, DeferredReason: removals.DeferredReason,
		},
	}, nil
}

// printDiffs says how much is left to be moved, and why some of it is not.
func printDiffs(w io.Writer, b *extdiff.Backlog) {
	if b == nil {
		return
	}
	printSweep(w, b.Stores)
	printUploads(w, b.Uploads)
	if b.Pending+b.Removals == 0 {
		return
	}
	more := ""
	if b.BytesCapped {
		more = ", in the first of them"
	}
	_, _ = fmt.Fprintf(w, "\nDIFFS IN THE DATABASE\tBYTES%s\tOBJECTS TO BE REMOVED\n%d\t%d\t%d\n", more, b.Pending, b.Bytes, b.Removals)
	for _, reason := range slices.Sorted(maps.Keys(b.Skipped)) {
		_, _ = fmt.Fprintf(w, "of these %s\t%d\n", reason, b.Skipped[reason])
	}
}

// printUploads lists uploads in parts that have not come to their end.
func printUploads(w io.Writer, uploads []extdiff.Unfinished) {
	if len(uploads) == 0 {
		return
	}
	_, _ = fmt.Fprint(w, "\nUPLOAD OF DIFF\tSENT\tBYTES\tBEGAN\tLAST SEEN\tFAILURES\tLAST ERROR\n")
	for _, u := range uploads {
		_, _ = fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%s\t%d\t%s\n",
			u.DiffID, u.Sent, u.Bytes, u.BeganAt.UTC().Format(time.RFC3339), u.SeenAt.UTC().Format(time.RFC3339), u.Failures, u.Error)
	}
}

// turnedBack names the thing that a run had to wait for: a store, say, that was not available.
func turnedBack(run dbsqlc.RunsLastRow) string {
	var stats struct {
		WaitingFor string `json:"waiting_for"`
		Refused    bool   `json:"refused"`
	}
	if run.Outcome == nil || json.Unmarshal(run.Stats, &stats) != nil {
		return ""
	}
	switch {
	case *run.Outcome == string(jobrun.Failed) && stats.Refused:
		return "somebody to mend what its last run met; it tries again by itself"
	case *run.Outcome == string(jobrun.Skipped) && stats.WaitingFor != "":
		return "another try, after: " + stats.WaitingFor
	}
	return ""
}

// refusedWorkers tells of a store that has refused a worker last. The probe says so of what this command meets; a worker may have
// other credentials.
func refusedWorkers(ctx context.Context, db database.Database) ([]doctor.Finding, error) {
	runs, err := db.Queries().RunsLast(ctx, dbsqlc.RunsLastParams{Kinds: []string{riverjobs.MigrateExternalDiff}, Databases: []string{db.Name}})
	if err != nil {
		return nil, fmt.Errorf("read the last run: %w", err)
	}
	for _, run := range runs {
		var stats struct {
			WaitingFor string `json:"waiting_for"`
			Refused    bool   `json:"refused"`
		}
		if json.Unmarshal(run.Stats, &stats) != nil || !stats.Refused {
			continue
		}
		reason := stats.WaitingFor
		if run.Error != nil {
			reason = *run.Error
		}
		return []doctor.Finding{{
			Severity: problem.Error, Object: "external_diffs.bucket",
			Message: fmt.Sprintf("the store has refused the worker %s at %s, but not this command: %s",
				run.Holder, run.StartedAt.UTC().Format(time.RFC3339), reason),
			Fix: "give the worker the credentials that this command has and start it anew; where the cause is gone, it tries again within 15 minutes",
		}}, nil
	}
	return nil, nil
}

// inUse leaves out stores that are no longer in use: each pass looks at the seals of the stores in use.
func inUse(stores []extdiff.StoreState) (used []extdiff.StoreState) {
	for _, s := range stores {
		if s.SealedAt != nil && stores[0].SealedAt.Sub(*s.SealedAt) < 24*time.Hour {
			used = append(used, s)
		}
	}
	return used
}

// printSweep prints the last look through each store that is in use for objects that no row refers to.
func printSweep(w io.Writer, stores []extdiff.StoreState) {
	heading := "\nLAST SWEEP OF\tBEGAN\tENDED\tOBJECTS\tREMOVED\tFOREIGN\tHELD BACK\n"
	for _, s := range inUse(stores) {
		if s.SweepBeganAt == nil {
			continue
		}
		ended := "under way"
		if s.SweepEndedAt != nil {
			ended = s.SweepEndedAt.UTC().Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(w, "%s%s\t%s\t%s\t%d\t%d\t%d\t%d\n",
			heading, s.Store, s.SweepBeganAt.UTC().Format(time.RFC3339), ended, s.Listed, s.Swept.Swept, s.Foreign, s.HeldBack)
		heading = ""
	}
}

// heldBack tells of objects without a row that the sweep leaves alone because they are too many.
func heldBack(ctx context.Context, db database.Database) ([]doctor.Finding, error) {
	stores, err := extdiff.ReadStores(ctx, db.Pool, db.Names)
	var found []doctor.Finding
	for _, s := range inUse(stores) {
		if s.HeldBack == 0 {
			continue
		}
		found = append(found, doctor.Finding{
			Severity: problem.Warning, Object: s.Store,
			Message: fmt.Sprintf("no row refers to %s, more than half of those beside them, so the sweep leaves them: rows may be missing",
				words.Counted(s.HeldBack, "object")),
			Fix: "look at `sexton diffs verify`; where they may go, `sexton diffs verify --remove-dangling`",
		})
	}
	return found, err
}

// manySkipped is the number of diffs from which their failures to move likely have one cause.
const manySkipped = 100

// skippedDiffs tells of diffs that stay in the database although they are due. They are left alone until they change.
func skippedDiffs(ctx context.Context, db database.Database) ([]doctor.Finding, error) {
	skipped, err := extdiff.ReadSkipped(ctx, db.Pool, db.Names)
	if err != nil {
		return nil, err
	}
	var total int64
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		total += skipped[reason]
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, skipped[reason]))
	}
	if total == 0 {
		return nil, nil
	}
	severity := problem.Info
	if total >= manySkipped {
		severity = problem.Warning
	}
	return []doctor.Finding{{
		Severity: severity, Object: diffTable,
		Message: fmt.Sprintf("%s cannot be moved and stay in the database: %s", words.Counted(total, "diff"), strings.Join(reasons, ", ")),
		Fix:     db.Names.Render(`look at SELECT diff_id, skip_reason FROM "sexton".external_diffs WHERE skip_reason IS NOT NULL`),
	}}, nil
}

// diffsTexts refuses texts of another type than text: bytes have no encoding by which to tell what is base64.
func diffsTexts(ctx context.Context, db database.Database) ([]doctor.Finding, error) {
	var kind string
	err := db.Pool.QueryRow(ctx, db.Names.Render(`
		SELECT pg_catalog.format_type(attribute.atttypid, attribute.atttypmod)
		FROM pg_catalog.pg_attribute AS attribute
		JOIN pg_catalog.pg_type AS type ON type.oid = attribute.atttypid
		WHERE attribute.attrelid = pg_catalog.to_regclass('"public".merge_request_diff_files')
		  AND attribute.attname = 'diff' AND NOT attribute.attisdropped AND type.typcategory <> 'S'`)).Scan(&kind)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up the type of diffs: %w", err)
	}
	return []doctor.Finding{{
		Severity: problem.Error, Object: "merge_request_diff_files.diff",
		Message: fmt.Sprintf("the column is of type %s, so no diff can be moved: only texts can", kind),
		Fix: db.Names.Render(`ALTER TABLE "public".merge_request_diff_files ALTER diff TYPE text USING pg_catalog.convert_from(diff, 'UTF8'),` +
			` or external_diffs: {enabled: false}`),
	}}, nil
}

// diffsTrigger tells where deleted diffs leave their objects behind. An application that replaces its table, by a partitioned one,
// say, or loads it from a dump, loses triggers without a word.
func diffsTrigger(ctx context.Context, db database.Database) ([]doctor.Finding, error) {
	state, err := extdiff.ReadTrigger(ctx, db.Pool, db.Names)
	if err != nil || state == extdiff.TriggerActive {
		return nil, err
	}
	return []doctor.Finding{{
		Severity: problem.Warning, Object: diffTable,
		Message: fmt.Sprintf("the trigger %s is %s: the objects of deleted diffs are not removed", extdiff.TriggerName, state),
		Fix:     db.Names.Render(extdiff.TriggerFix(state)),
	}}, nil
}

// probeDiffStores writes an object to each store, reads it back and deletes it. Then it looks whose the store's objects are.
func (x *examination) probeDiffStores(ctx context.Context) ([]doctor.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	key := "external_diffs.bucket"
	var jobs database.Database
	reached := x.reached(x.Config.Jobs.Database)
	if reached {
		jobs = x.Jobs()
	}
	engine, err := riverjobs.OpenDiffs(ctx, x.Config, jobs, nil, installation.Holder())
	if err == nil {
		err = engine.Each(ctx, func(at *extdiff.Engine) error {
			if at != engine {
				key = "external_diffs.other_bucket"
			}
			err := at.Store.Probe(ctx, installation.Holder())
			if err == nil && reached {
				err = installed(at.Owner.Check(ctx))
			}
			return err
		})
	}
	if err == nil {
		return nil, nil
	}
	found := x.Config.Problem(key, err.Error(), "see that the store is up and that this machine reaches it")
	if refused, ok := errors.AsType[*blobstore.AccessError](err); ok {
		found = x.Config.Problem(refused.Key, refused.Store+": "+refused.Reason, refused.Fix)
	}
	return asFindings(problem.List{found}), nil
}

// The SQLSTATEs of a schema that external_diffs is not, or not wholly, installed in.
const (
	undefinedTable    = "42P01"
	undefinedFunction = "42883"
)

// installed leaves out an error that the check of the schema tells of.
func installed(err error) error {
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && (failed.Code == undefinedTable || failed.Code == undefinedFunction) {
		return nil
	}
	return err
}
