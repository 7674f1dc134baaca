package gather

// Waiting is how many keys wait for a question.
func Waiting[K comparable, V any](g *Gatherer[K, V]) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, r := range g.waiting {
		n += len(r.keys)
	}
	return n
}
