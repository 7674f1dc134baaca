package webcall

import (
	"fmt"
	"net/netip"
	"syscall"
)

// A forbiddenError says that a connection was refused before it was made.
type forbiddenError struct {
	address netip.Addr
	why     string
}

func (e *forbiddenError) Error() string {
	return fmt.Sprintf("address %s is %s; allowed: public addresses", e.address, e.why)
}

type block struct {
	prefix netip.Prefix
	why    string
}

// forbiddenBlocks are what netip has no word for. Of IPv6 only 2000::/3 is public at all; see forbidden.
var forbiddenBlocks = []block{
	{netip.MustParsePrefix("0.0.0.0/8"), "of this network"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared behind a carrier's NAT"},
	{netip.MustParsePrefix("168.63.129.16/32"), "of a cloud's metadata"}, // Azure; those of others are link-local, private or shared
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "of a 6to4 relay"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("2001::/23"), "reserved"}, // Teredo among them
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation"},
	{netip.MustParsePrefix("2002::/16"), "of 6to4, which may lead to any IPv4 address"},
	{netip.MustParsePrefix("3fff::/20"), "for documentation"},
}

var (
	publicIPv6 = netip.MustParsePrefix("2000::/3")
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
)

// forbidden tells why an address is not one of the public internet; empty if it is.
func forbidden(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		// Networks of IPv6 alone reach public IPv4 addresses so; private ones as well.
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	switch {
	case !a.IsValid():
		return "not valid"
	case a.IsUnspecified():
		return "unspecified"
	case a.IsLoopback():
		return "loopback"
	case a.IsPrivate():
		return "private"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case a.IsMulticast():
		return "multicast"
	}
	for _, b := range forbiddenBlocks {
		if b.prefix.Contains(a) {
			return b.why
		}
	}
	if a.Is6() && !publicIPv6.Contains(a) {
		return "not public"
	}
	return ""
}

// guardDial is called for every address that a connection is about to be made to, after all names are resolved: what DNS said at any other time does not
// matter, nor where a redirect came from.
func guardDial(forbidden func(netip.Addr) string) func(network, address string, _ syscall.RawConn) error {
	return func(network, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || network != "tcp4" && network != "tcp6" {
			return fmt.Errorf("dial %s %s: not an address of TCP", network, address)
		}
		if why := forbidden(to.Addr()); why != "" {
			return &forbiddenError{to.Addr(), why}
		}
		return nil
	}
}
