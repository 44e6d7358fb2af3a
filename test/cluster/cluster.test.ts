import { afterAll, beforeAll, expect, test } from 'vitest'
import { describeWithCluster, startCluster, type Cluster } from './harness/cluster.ts'

describeWithCluster('a one-node cluster', () => {
  let cluster: Cluster
  beforeAll(async () => {
    cluster = await startCluster()
  })
  afterAll(() => cluster?.stop())

  test('has a node that is ready', async () => {
    expect(await cluster.kubectl(['get', 'nodes', '-o', 'jsonpath={.items[*].status.nodeInfo.kubeletVersion}'])).toMatch(/^v1\.36\./)
  })
})
