package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"sexton/internal/components"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/loosefk"
	"sexton/internal/problem"
	"sexton/internal/render"
	"sexton/internal/undo"
	"sexton/internal/web"
	riverjobs "sexton/river_jobs"
)

const (
	// shownKept is the number of saved deletions that the page lists. shownLeft is the
	// number of rows that it lists as not restored.
	shownKept, shownLeft = 10, 50
	// keptFor is the time for which the list of saved deletions is cached. Listing them
	// is expensive, because it reads the keys of saved rows.
	keptFor     = 10 * time.Second
	keptTimeout = 3 * time.Second
	// undoWait is how long a request waits for its restore, so that most users see the
	// result.
	undoWait = 2 * time.Second
)

// UndoEngine returns an engine for the saved deletions of the reachable databases.
func UndoEngine(ctx context.Context, all *installation.Bound, holder string) (*undo.Engine, error) {
	settings := all.Config.LooseForeignKeys.Undo
	there, err := keeping(ctx, all.Connections)
	if err != nil {
		return nil, err
	}
	if !settings.On() && len(there) == 0 {
		return nil, problem.List{{
			Severity: problem.Error, Key: "loose_foreign_keys.undo.keep", Message: "is 0s, so no deletion is kept",
			Fix: "set it, for example to 72h, run `sexton migrate up` and `sexton triggers install`, and restart the workers",
		}}
	}
	return all.Undo(holder, there), nil
}

// keeping returns the reachable databases that save deletions. If undo is disabled, it
// returns the databases that still have the tables of saved deletions.
func keeping(ctx context.Context, all *installation.Connections) (there []database.Database, _ error) {
	for _, db := range all.Databases {
		if all.Down[db.Name] != nil {
			continue
		}
		kept := all.Config.LooseForeignKeys.Undo.On()
		if !kept {
			var err error
			if kept, err = undo.Keeps(ctx, db); err != nil {
				return nil, err
			}
		}
		if kept {
			there = append(there, db)
		}
	}
	return there, nil
}

// ChangeKept calls do, which restores or discards a deletion, and writes an audit record.
// While do is running, ChangeKept sends heartbeats, so that other processes free its
// leases if this process is killed.
func ChangeKept(ctx context.Context, all *installation.Bound, id int64, by database.Change, log *slog.Logger,
	do func(*undo.Engine) error,
) error {
	if err := all.Complete(); err != nil {
		return err
	}
	holder := undo.Holder + installation.Holder()
	engine, err := UndoEngine(ctx, all, holder)
	if err != nil {
		return err
	}
	stop, err := installation.Beat(ctx, all.Connections, holder, log)
	if err != nil {
		return err
	}
	defer stop()
	by.Target = "deletion " + strconv.FormatInt(id, 10)
	if err := all.Record(ctx, by); err != nil {
		return err
	}
	// Wake the workers that found the leases taken. Otherwise they would sleep until the
	// next commit.
	return errors.Join(do(engine), installation.Wake(context.WithoutCancel(ctx), all.Jobs().Pool,
		riverjobs.LooseForeignKeys))
}

// Deletion is a saved deletion, with its restore by this process, if any.
type Deletion struct {
	*undo.Unit

	Undone *Undone
}

// Rows returns the number of deleted and changed rows.
func (d Deletion) Rows() (rows int64) {
	for _, table := range d.Tables {
		rows += table.Rows
	}
	return rows
}

// KeySummary lists the first keys of the deletion and the number of further keys.
func (d Deletion) KeySummary() string {
	keys := render.Listed(d.Keys)
	if more := d.Tables[0].Rows - int64(len(d.Keys)); more > 0 && keys != "" {
		keys += " and " + render.Grouped(more) + " more"
	}
	return keys
}

// Missing returns the number of rows that are not restored.
func (d Deletion) Missing() int64 {
	missing := d.Rows()
	for _, table := range d.Tables {
		missing -= table.Restored
	}
	return missing
}

// Working reports whether this process is restoring the deletion.
func (d Deletion) Working() bool { return d.Undone != nil && d.Undone.Outcome() == "" }

// Complete reports whether all rows of the deletion are restored.
func (d Deletion) Complete() bool { return d.State == "restored" }

// Undone is a restore that a user of the page began.
type Undone struct {
	By    string
	Since time.Time
	// Report is nil while the restore is running. It lists the first rows that were not
	// restored.
	Report *undo.Report
	Err    error

	id    int64
	ended chan struct{}
}

// Incomplete reports whether the restore failed or left a row.
func (u *Undone) Incomplete() bool { return u.Err != nil || u.Report != nil && u.Report.LeftRows > 0 }

// Outcome describes the result, or returns "" while the restore is running.
func (u *Undone) Outcome() string {
	switch {
	case u.Err != nil && u.Report != nil && u.Report.Restored > 0:
		return render.Counted(u.Report.Restored, "row") + " restored, and then: " + u.Err.Error()
	case u.Err != nil:
		return "the deletion was not restored: " + u.Err.Error()
	case u.Report == nil:
		return ""
	}
	text := render.Counted(u.Report.Restored, "row") + " restored"
	if u.Incomplete() {
		text += ", " + render.Counted(u.Report.LeftRows, "row") + " left"
	}
	return text
}

// Kept holds the newest saved deletions. The page's Kept is nil if undo was never
// enabled.
type Kept struct {
	Deletions []Deletion
	// Size describes the number and size of all saved deletions in all databases, and the
	// age of the oldest.
	Size string
	// Trouble is the reason why saved deletions cannot be read.
	Trouble string
}

// current returns all databases, and marks the databases that do not answer now as down.
func (s *PageSource) current(ctx context.Context) *installation.Bound {
	return &installation.Bound{Connections: reachable(ctx, s.all.Connections), Definitions: s.all.Definitions}
}

// readKept reads the newest saved deletions, or the one with the given ID.
func (s *PageSource) readKept(ctx context.Context, id int64) *Kept {
	if !s.all.Config.LooseForeignKeys.Enabled {
		return nil
	}
	var found []*undo.Unit
	kept := &Kept{}
	engine, err := UndoEngine(ctx, s.current(ctx), "")
	switch _, off := errors.AsType[problem.List](err); {
	case off:
		return nil
	case err != nil:
	case id == 0:
		if found, err = engine.List(ctx, shownKept); err == nil {
			kept.Size, err = engine.Size(ctx)
		}
	default:
		var one *undo.Unit
		if one, err = engine.Show(ctx, id); err == nil {
			found = append(found, one)
		}
	}
	if errors.Is(err, undo.ErrUnknown) {
		return kept
	}
	if err != nil {
		s.log.WarnContext(ctx, "kept_deletions_not_read", "error", err)
		kept.Trouble = err.Error()
	}
	for _, unit := range found {
		kept.Deletions = append(kept.Deletions, Deletion{Unit: unit})
	}
	return kept
}

// Deletion returns the deletion with an ID, or nil if it is not saved.
func (s *PageSource) Deletion(ctx context.Context, id int64) (*Deletion, error) {
	kept := s.kept.Get(ctx, id)
	switch {
	case kept == nil || kept.Trouble == "" && len(kept.Deletions) == 0:
		return nil, nil //nolint:nilnil // a missing deletion is not an error
	case kept.Trouble != "":
		return nil, errors.New(kept.Trouble)
	}
	one := kept.Deletions[0]
	s.undoing.Lock()
	defer s.undoing.Unlock()
	if i := slices.IndexFunc(s.undone, func(u *Undone) bool { return u.id == id }); i >= 0 {
		one.Undone = new(*s.undone[i])
	}
	return &one, nil
}

// Undo restores a deletion, like `sexton undo`. A long restore continues after the
// response, until the worker stops. A second call continues an unfinished restore.
func (s *PageSource) Undo(ctx context.Context, by web.Visitor, id int64) (string, error) {
	work := &Undone{By: by.Actor, Since: time.Now(), id: id, ended: make(chan struct{})}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	if err := s.beginUndo(work, stop); err != nil {
		stop()
		return "", err
	}
	go func() {
		defer stop()
		defer close(work.ended)
		report, err := s.restore(working, by, id)
		if errors.Is(err, undo.ErrUnknown) || errors.Is(err, undo.ErrBusy) || errors.Is(err, undo.ErrTwice) {
			err = components.Refuse("%v", err)
		} else if err != nil {
			s.log.ErrorContext(working, "undo_failed", "deletion", id, "error", err)
		}
		if report != nil {
			report.Left = slices.Clone(report.Left[:min(shownLeft, len(report.Left))])
		}
		s.undoing.Lock()
		defer s.undoing.Unlock()
		work.Report, work.Err = report, err
		s.kept.Forget()
	}()
	wait := time.NewTimer(undoWait)
	defer wait.Stop()
	select {
	case <-work.ended:
		s.undoing.Lock()
		defer s.undoing.Unlock()
		return work.Outcome(), work.Err
	case <-wait.C:
		return fmt.Sprintf("deletion %d is being restored; its page shows the progress", id), nil
	}
}

// restore binds the definitions to the current databases and restores a deletion.
func (s *PageSource) restore(ctx context.Context, by web.Visitor, id int64) (report *undo.Report, err error) {
	all := s.current(ctx)
	if all.Parents, _, err = loosefk.Resolve(ctx, all.Sites(), all.Definitions); err != nil {
		return nil, err
	}
	entry := database.Change{Actor: by.Actor, Remote: by.Remote, Action: "undo"}
	err = ChangeKept(ctx, all, id, entry, s.log, func(engine *undo.Engine) error {
		report, err = engine.Restore(ctx, id, false)
		return err
	})
	return report, err
}

// beginUndo registers a restore. It allows one at a time, because a second one would wait
// for the leases of the first.
func (s *PageSource) beginUndo(work *Undone, stop context.CancelFunc) error {
	s.undoing.Lock()
	defer s.undoing.Unlock()
	for _, other := range s.undone {
		select {
		case <-other.ended:
		default:
			return components.Refuse("deletion %d is being restored; wait until that ends", other.id)
		}
	}
	s.undone = slices.DeleteFunc(s.undone, func(u *Undone) bool { return u.id == work.id })
	s.undone = append(s.undone[max(0, len(s.undone)-shownKept+1):], work)
	s.stopUndo = stop
	return nil
}

// Stop cancels running restores and waits until they have returned.
func (s *PageSource) Stop() {
	s.undoing.Lock()
	stop, undone := s.stopUndo, slices.Clone(s.undone)
	s.undoing.Unlock()
	if stop != nil {
		stop()
	}
	for _, work := range undone {
		<-work.ended
	}
}
