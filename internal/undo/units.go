package undo

import (
	"cmp"
	"maps"
	"slices"
)

// unit is a deletion with all that it caused, parents before children.
type unit struct {
	id   int64
	sets []*set
	by   map[int64][]*set
	at   map[place]*set
}

// family are the sets that databases keep: the ones that no set caused by their IDs, and the others by the IDs of the ones that did.
type family struct{ roots, below map[int64][]*set }

func (f *family) add(s *set) {
	slices.Sort(s.Origins)
	for _, id := range s.Origins {
		f.below[id] = append(f.below[id], s)
	}
	if len(s.Origins) == 0 {
		f.roots[s.ID] = append(f.roots[s.ID], s)
	}
}

// unit gathers the sets of a deletion, copies of their own; nil where none began it.
func (f *family) unit(id int64) *unit {
	u := &unit{id: id, by: map[int64][]*set{}, at: map[place]*set{}}
	next, known := []int64{id}, map[int64]bool{}
	for sets := f.roots[id]; ; {
		for _, s := range sets {
			if at := (place{s.on.Name, s.Number}); u.at[at] == nil {
				one := *s
				u.at[at], u.sets, next = &one, append(u.sets, &one), append(next, s.ID)
			}
		}
		for len(next) > 0 && known[next[0]] {
			next = next[1:]
		}
		if len(next) == 0 {
			break
		}
		known[next[0]], sets = true, f.below[next[0]]
	}
	if len(f.roots[id]) == 0 {
		return nil
	}
	slices.SortFunc(u.sets, inTurn)
	for _, s := range u.sets {
		u.by[s.ID] = append(u.by[s.ID], s)
	}
	u.sort()
	return u
}

// inTurn is the order of sets: that of their statement.
func inTurn(a, b *set) int {
	place := func(s *set) int { return 2*min(1, len(s.Fields)) + min(1, len(s.Via)) }
	return cmp.Or(cmp.Compare(place(a), place(b)), a.KeptAt.Compare(b.KeptAt), cmp.Compare(a.Number, b.Number))
}

// causes are the IDs in the unit of the sets that caused one, in order: a batch may have cleaned up after thousands of others.
func (u *unit) causes(s *set, ids []int64) []int64 {
	if len(s.Origins) <= len(ids) {
		return s.Origins
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool {
		_, found := slices.BinarySearch(s.Origins, id)
		return !found
	})
}

// sort puts each set behind the sets that caused it, native foreign keys among the causes, and changed rows last: they may have been deleted later.
// Origins are older, so that a cycle of definitions makes no cycle of sets.
func (u *unit) sort() {
	sorted, done, ids := make([]*set, 0, len(u.sets)), map[*set]bool{}, slices.Sorted(maps.Keys(u.by))
	var add func(s *set)
	add = func(s *set) {
		if done[s] {
			return
		}
		done[s] = true
		for _, id := range u.causes(s, ids) {
			for _, above := range u.by[id] {
				add(above)
			}
		}
		for _, by := range s.Cascades {
			for _, above := range u.by[s.ID] {
				// A batch's own rows come first: the others of its sets went with them.
				if above.Relation == by.Parent && (s.along() || len(s.Origins) == 0) {
					add(above)
				}
			}
		}
		sorted = append(sorted, s)
	}
	for _, s := range u.sets {
		add(s)
	}
	slices.SortStableFunc(sorted, func(a, b *set) int {
		if len(a.Changed) > 0 && len(b.Changed) > 0 {
			return cmp.Compare(a.Number, b.Number) // Each hands its values to the next one of a row.
		}
		return cmp.Compare(min(1, len(a.Changed)), min(1, len(b.Changed)))
	})
	u.sets = sorted
}
