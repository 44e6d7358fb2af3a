import { describe, expect, test } from 'vitest'
import { createClientAddress, createNetworks, isNetwork } from '../../src/base/client-address.ts'

describe('a network', () => {
  test.each(['10.0.0.0/8', '10.1.2.3', '0.0.0.0/0', '2001:db8::/32', '::1', '::/0'])('is %s', (text) => expect(isNetwork(text)).toBe(true))
  test.each(['', 'x', '10.0.0.0/33', '10.0.0.0/', '10.0.0.0/-1', '10.0.0/8', '2001:db8::/129', '10.0.0.0/8/8', '10.0.0.0/8 '])('is not %j', (text) =>
    expect(isNetwork(text)).toBe(false),
  )
})

describe('whose request it is', () => {
  const address = createClientAddress(createNetworks(['10.0.0.0/8', '2001:db8:1::/48']))
  test.each<[string, string | undefined, string | undefined, string]>([
    ['the other end, without the header', '203.0.113.9', undefined, '203.0.113.9'],
    ['the other end, where it is no trusted proxy', '203.0.113.9', '198.51.100.1', '203.0.113.9'],
    ['what a trusted proxy says', '10.1.2.3', '198.51.100.1', '198.51.100.1'],
    ['what a trusted proxy says, seen as IPv6', '::ffff:10.1.2.3', '198.51.100.1', '198.51.100.1'],
    ['what an IPv6 proxy says', '2001:db8:1::5', '2001:db8:ffff::1', '2001:db8:ffff::1'],
    ['the last of several, not what the client wrote itself', '10.1.2.3', '1.1.1.1, 198.51.100.1', '198.51.100.1'],
    ['the last that is not trusted', '10.1.2.3', '1.1.1.1, 198.51.100.1, 10.9.9.9,10.8.8.8', '198.51.100.1'],
    ['the farthest of proxies alone', '10.1.2.3', '10.9.9.9, 10.8.8.8', '10.9.9.9'],
    ['without its port', '10.1.2.3', '198.51.100.1:4711', '198.51.100.1'],
    ['without brackets and port', '10.1.2.3', '[2001:db8:ffff::1]:4711', '2001:db8:ffff::1'],
    ['the proxy, where the entry is no address', '10.1.2.3', '198.51.100.1, unknown', '10.1.2.3'],
    ['the proxy, where the entry is empty', '10.1.2.3', '', '10.1.2.3'],
    ['no address, if the connection is closed', undefined, '198.51.100.1', ''],
  ])('%s', (_name, peer, forwardedFor, expected) => {
    expect(address(peer, forwardedFor)).toBe(expected)
  })

  test('no forwarded address is trusted without a trusted proxy', () => {
    expect(createClientAddress(createNetworks([]))('10.1.2.3', '198.51.100.1')).toBe('10.1.2.3')
  })
})
