package extdiff

// Waiting counts the diffs that wait for the transaction under way.
func (w *Switches) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting)
}
