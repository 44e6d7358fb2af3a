import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { cgroupFolders, makeCgroups, processesOfCgroups } from './harness/cgroups.ts'
import { describeWithCluster } from './harness/cluster.ts'
import { run } from './harness/command.ts'
import { leftOf } from './harness/remains/left-of.ts'
import { enterNetwork, makeNetwork } from './harness/network.ts'
import { claimPlace } from './harness/remains/claim-place.ts'
import { removeRemains } from './harness/remains/remains.ts'

describeWithCluster('processes and files left by a killed cluster test', () => {
  test('processes and files left by a killed cluster test are removed by the next cluster in the same place: processes, mounts, network, cgroups, files', async () => {
    const place = await claimPlace()
    await makeCgroups(place.name)
    await makeNetwork(place)
    const mounted = join(place.directory, 'with a space')
    await mkdir(mounted)
    await run('mount', ['-t', 'tmpfs', 'none', mounted])
    const [nsenter = '', ...entry] = enterNetwork(place)
    const server = spawn(nsenter, [...entry, 'sleep', 'infinity'])
    const pod = spawn('sleep', ['infinity'])
    const ends = Promise.all([once(server, 'exit'), once(pod, 'exit')])
    for (const controller of await cgroupFolders(place.name)) await writeFile(join(controller, 'cgroup.procs'), String(pod.pid))
    expect(await processesOfCgroups(place.name)).toContain(pod.pid)
    expect((await leftOf(place)).length).toBeGreaterThan(3)

    // The id of a process that has ended.
    await writeFile(join(place.directory, 'owner'), String(spawnSync('true').pid))
    const next = await claimPlace()
    expect(next.name).toBe(place.name)
    await ends
    expect(await leftOf(place)).toEqual([place.directory])
    expect(await readdir(place.directory)).toEqual(['owner'])
    await removeRemains(next)
    expect(await leftOf(place)).toEqual([])
  })

  test('processes and files left by a killed cluster test are not touched while their test still runs', async () => {
    const [first, second] = [await claimPlace(), await claimPlace()]
    expect(second.name).not.toBe(first.name)
    for (const place of [first, second]) await removeRemains(place)
  })
})
