import { describe, expect, test } from 'vitest'
import { createClientAddress, createNetworks, isNetwork } from '../../src/base/client-address.ts'

describe('a network in CIDR notation', () => {
  test.each(['10.0.0.0/8', '10.1.2.3', '0.0.0.0/0', '2001:db8::/32', '::1', '::/0'])('a network in CIDR notation is valid: %s', (text) =>
    expect(isNetwork(text)).toBe(true),
  )
  test.each(['', 'x', '10.0.0.0/33', '10.0.0.0/', '10.0.0.0/-1', '10.0.0/8', '2001:db8::/129', '10.0.0.0/8/8', '10.0.0.0/8 '])(
    'a network in CIDR notation is invalid: %j',
    (text) => expect(isNetwork(text)).toBe(false),
  )
})

describe('the client address of a request', () => {
  const address = createClientAddress(createNetworks(['10.0.0.0/8', '2001:db8:1::/48']))
  test.each<[string, string | undefined, string | undefined, string]>([
    ['is the peer of the connection without a forwarding header', '203.0.113.9', undefined, '203.0.113.9'],
    ['is the peer of the connection if the peer is not a trusted proxy', '203.0.113.9', '198.51.100.1', '203.0.113.9'],
    ['is the address that a trusted proxy forwards', '10.1.2.3', '198.51.100.1', '198.51.100.1'],
    ['is the forwarded address of a trusted proxy that connects as IPv4-mapped IPv6', '::ffff:10.1.2.3', '198.51.100.1', '198.51.100.1'],
    ['is the forwarded address of an IPv6 proxy', '2001:db8:1::5', '2001:db8:ffff::1', '2001:db8:ffff::1'],
    ['is the last of several forwarded addresses, not one that the client wrote', '10.1.2.3', '1.1.1.1, 198.51.100.1', '198.51.100.1'],
    ['is the last forwarded address that is not a trusted proxy', '10.1.2.3', '1.1.1.1, 198.51.100.1, 10.9.9.9,10.8.8.8', '198.51.100.1'],
    ['is the farthest proxy if all addresses are trusted proxies', '10.1.2.3', '10.9.9.9, 10.8.8.8', '10.9.9.9'],
    ['has no port', '10.1.2.3', '198.51.100.1:4711', '198.51.100.1'],
    ['has no brackets and no port', '10.1.2.3', '[2001:db8:ffff::1]:4711', '2001:db8:ffff::1'],
    ['is the proxy if the forwarded entry is not an address', '10.1.2.3', '198.51.100.1, unknown', '10.1.2.3'],
    ['is the proxy if the forwarded entry is empty', '10.1.2.3', '', '10.1.2.3'],
    ['is missing if the connection is closed', undefined, '198.51.100.1', ''],
  ])('%s', (_name, peer, forwardedFor, expected) => {
    expect(address(peer, forwardedFor)).toBe(expected)
  })

  test('the client address of a request ignores forwarded addresses without a trusted proxy', () => {
    expect(createClientAddress(createNetworks([]))('10.1.2.3', '198.51.100.1')).toBe('10.1.2.3')
  })
})
