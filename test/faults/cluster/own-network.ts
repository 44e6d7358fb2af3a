import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readlinkSync } from 'node:fs'
import { ensurePart } from '../../../tools/parts.js'
import type { DropPackets } from './network.ts'

/** Variable with the network of the process that started this one. */
const outerVariable = 'FAULTS_OUTER_NETWORK'
const outer = process.env[outerVariable]

function ownNetwork(): string {
  return readlinkSync('/proc/self/ns/net')
}

/**
 * Returns a function that drops packets in this process's own network, see `runInOwnNetwork`; undefined without one, because the machine's network is not
 * changed.
 */
export function packetDropper(): DropPackets | undefined {
  const nft = ensurePart('nft')
  if (outer === undefined || outer === ownNetwork() || !('path' in nft)) return undefined
  let last = ''
  return (packets) => {
    const rules = packets.map((packet) => ('to' in packet ? `tcp dport ${packet.to} drop` : `tcp sport ${packet.from} drop`)).join('\n')
    if (rules === last) return
    last = rules
    // One transaction, so that no packet passes between the old rules and the new ones.
    const input = `table ip faults\ndelete table ip faults\ntable ip faults {\nchain input {\ntype filter hook input priority 0\n${rules}\n}\n}\n`
    execFileSync(nft.path, ['-f', '-'], { input })
  }
}

/**
 * Runs this program again in a network with only a loopback interface, so that its packets can be dropped. Resolves with its exit code; undefined if this
 * process already is that one, or the machine can't create a network: it needs root on Linux.
 */
export async function runInOwnNetwork(): Promise<number | undefined> {
  if (outer !== undefined || process.platform !== 'linux' || process.getuid?.() !== 0) return undefined
  const ip = ensurePart('ip')
  if (!('path' in ip) || !('path' in ensurePart('nft')) || spawnSync('unshare', ['--net', 'true']).status !== 0) return undefined
  const script = 'ip=$1 && shift && "$ip" link set lo up && exec "$@"'
  const self = [process.execPath, ...process.execArgv, ...process.argv.slice(1)]
  const child = spawn('unshare', ['--net', 'sh', '-c', script, 'sh', ip.path, ...self], {
    stdio: 'inherit',
    env: { ...process.env, [outerVariable]: ownNetwork() },
  })
  // Ctrl-C reaches both processes. The inner one ends.
  process.on('SIGINT', () => undefined)
  process.on('SIGTERM', () => child.kill('SIGTERM'))
  const [code] = (await once(child, 'exit')) as [number | null]
  return code ?? 1
}
