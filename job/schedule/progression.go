package schedule

// progression is the arithmetic series first + n·step, n ≥ 0: the fires of once and every. once is the progression whose step
// leads out of the allowed instants.
type progression struct {
	first, step int64 // microseconds; step > 0
}

// single is a step longer than all allowed time; it cannot overflow when added to an allowed instant.
func single() int64 { return maxMicro - minMicro + 1 }

// index gives the n of the first term that is not before the instant.
func (p progression) index(from int64) int64 {
	if from <= p.first {
		return 0
	}
	return (from - p.first + p.step - 1) / p.step
}

func (p progression) term(n int64) fire {
	at := p.first + n*p.step
	return fire{at: at, civil: at}
}

func (p progression) walk(from int64) walker {
	return &progressionWalker{p: p, at: p.term(p.index(from)).at}
}

func (p progression) count(from, to int64, limit int) (int, fire) {
	low := p.index(from)
	if p.term(low).at > to {
		return 0, fire{}
	}
	n := min((to-p.first)/p.step-low+1, int64(limit))
	return int(n), p.term(low + n - 1)
}

func (p progression) latest(from, to int64) (fire, bool) {
	if to < p.first {
		return fire{}, false
	}
	f := p.term((to - p.first) / p.step)
	return f, f.at >= from
}

type progressionWalker struct {
	p  progression
	at int64
}

func (w *progressionWalker) next(to int64) (fire, bool) {
	if w.at > to {
		return fire{}, false
	}
	f := fire{at: w.at, civil: w.at}
	w.at += w.p.step
	return f, true
}
