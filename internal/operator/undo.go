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
	// shownKept are the deletions of the page's list, shownLeft the rows that stayed.
	shownKept, shownLeft = 10, 50
	// keptFor is for how long a look at what is kept is shared: it reads keys.
	keptFor     = 10 * time.Second
	keptTimeout = 3 * time.Second
	// undoWait is how long a button waits for the end of its work, so that most users see
	// it at once.
	undoWait = 2 * time.Second
)

// UndoEngine works for holder on what the databases keep that are there.
func UndoEngine(ctx context.Context, all *installation.Bound, holder string) (*undo.Engine, error) {
	settings := all.Config.LooseForeignKeys.Undo
	there, err := keeping(ctx, all.Connections)
	if err != nil {
		return nil, err
	}
	if !settings.On() && len(there) == 0 {
		return nil, problem.List{{
			Severity: problem.Error, Key: "loose_foreign_keys.undo.keep", Message: "is 0s, so that no deletion is kept",
			Fix: "set it, for example to 72h, run `sexton migrate up` and `sexton triggers install`, and restart the workers",
		}}
	}
	return all.Undo(holder, there), nil
}

// keeping are the databases that are there, and have a table of kept deletions once undo
// is switched off.
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

// ChangeKept has do take a deletion back or forget it, for a person, and records that.
// Meanwhile this process beats as workers do, so that its silence would free the leases.
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
	// Workers that met the leases sleep until the next commit.
	return errors.Join(do(engine), installation.Wake(context.WithoutCancel(ctx), all.Jobs().Pool,
		riverjobs.LooseForeignKeys))
}

// Deletion is one that is kept, with what this process did to take it back.
type Deletion struct {
	*undo.Unit

	Undone *Undone
}

// Rows counts what went with it.
func (d Deletion) Rows() (rows int64) {
	for _, table := range d.Tables {
		rows += table.Rows
	}
	return rows
}

// Named lists the first keys, and counts the others.
func (d Deletion) Named() string {
	named := render.Listed(d.Keys)
	if more := d.Tables[0].Rows - int64(len(d.Keys)); more > 0 && named != "" {
		named += " and " + render.Grouped(more) + " more"
	}
	return named
}

// Missing counts the rows that are not back.
func (d Deletion) Missing() int64 {
	missing := d.Rows()
	for _, table := range d.Tables {
		missing -= table.Restored
	}
	return missing
}

// Working reports whether this process is taking it back.
func (d Deletion) Working() bool { return d.Undone != nil && d.Undone.Said() == "" }

// Whole reports whether all of it is back.
func (d Deletion) Whole() bool { return d.State == "restored" }

// Undone is the work of a button.
type Undone struct {
	By    string
	Since time.Time
	// Report is nil as long as the work goes on. It has the first rows that stayed
	// deleted.
	Report *undo.Report
	Err    error

	id    int64
	ended chan struct{}
}

// Lacks reports whether something did not come back.
func (u *Undone) Lacks() bool { return u.Err != nil || u.Report != nil && u.Report.LeftRows > 0 }

// Said says what came of it, empty as long as the work goes on.
func (u *Undone) Said() string {
	switch {
	case u.Err != nil && u.Report != nil && u.Report.Restored > 0:
		return render.Counted(u.Report.Restored, "row") + " restored, and then: " + u.Err.Error()
	case u.Err != nil:
		return "the deletion was not restored: " + u.Err.Error()
	case u.Report == nil:
		return ""
	}
	said := render.Counted(u.Report.Restored, "row") + " restored"
	if u.Lacks() {
		said += ", " + render.Counted(u.Report.LeftRows, "row") + " left"
	}
	return said
}

// Kept are the newest deletions that are kept; nil where none ever is.
type Kept struct {
	Deletions []Deletion
	// Size says how much is kept in all databases, and for how long the oldest deletion
	// has been.
	Size string
	// Trouble says why they cannot be read.
	Trouble string
}

// now has the databases as they are now.
func (s *PageSource) now(ctx context.Context) *installation.Bound {
	return &installation.Bound{Connections: reachable(ctx, s.all.Connections), Definitions: s.all.Definitions}
}

// readKept reads the newest deletions, or one of a number.
func (s *PageSource) readKept(ctx context.Context, id int64) *Kept {
	if !s.all.Config.LooseForeignKeys.Enabled {
		return nil
	}
	var found []*undo.Unit
	kept := &Kept{}
	engine, err := UndoEngine(ctx, s.now(ctx), "")
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

// Deletion is the one of a number; nil where it is not kept.
func (s *PageSource) Deletion(ctx context.Context, id int64) (*Deletion, error) {
	kept := s.kept.Get(ctx, id)
	switch {
	case kept == nil || kept.Trouble == "" && len(kept.Deletions) == 0:
		return nil, nil //nolint:nilnil // that there is none is an answer
	case kept.Trouble != "":
		return nil, errors.New(kept.Trouble)
	}
	one := kept.Deletions[0]
	s.undoing.Lock()
	defer s.undoing.Unlock()
	if at := slices.IndexFunc(s.undone, func(u *Undone) bool { return u.id == id }); at >= 0 {
		one.Undone = new(*s.undone[at])
	}
	return &one, nil
}

// Undo takes a deletion back as the command line does. What takes long goes on after the
// answer, until the worker ends; given again it goes on.
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
		return work.Said(), work.Err
	case <-wait.C:
		return fmt.Sprintf("deletion %d is being restored; its page shows the progress", id), nil
	}
}

// restore binds the definitions to the databases as they are now.
func (s *PageSource) restore(ctx context.Context, by web.Visitor, id int64) (report *undo.Report, err error) {
	all := s.now(ctx)
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

// beginUndo admits one at a time: the leases would make others wait.
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

// Stop ends what a button began, and waits for that.
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
