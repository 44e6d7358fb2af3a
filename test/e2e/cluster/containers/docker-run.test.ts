import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readmeSteps } from '../../docs/readme-steps.ts'
import { composedServices } from './compose-services.ts'
import { readDockerLine } from './docker-line.ts'
import { ContainerEngine, describeWithContainers, type RunningContainer } from './engine.ts'

const root = join(import.meta.dirname, '..', '..', '..', '..')

// docs/install.md#the-image
describeWithContainers('the container of docs/install.md', () => {
  let engine: ContainerEngine
  let container: RunningContainer
  let line = ''
  let push = ''
  beforeAll(async () => {
    const steps = readmeSteps(await readFile(join(root, 'docs', 'install.md'), 'utf8'), 'The image')
    line = lineOf(steps.map(({ script }) => script).join('\n'))
    push = steps.find(({ script }) => script.includes('docker push'))?.script ?? ''
    engine = await ContainerEngine.start()
    container = await engine.run(readDockerLine(line))
    const [service] = await composedServices('compose.yaml')
    await container.untilHealthy(service?.healthcheck ?? [])
  })
  afterAll(() => engine?.stop())

  test('the container of docs/install.md answers at the ports that it publishes, and at no others', async () => {
    const { published } = readDockerLine(line)
    expect(published.map(({ target }) => target)).toEqual([8080, 5000])
    const status = (url: string): Promise<string> => engine.shell(`curl --silent --output /dev/null --write-out '%{http_code}' ${url} || true`)
    expect(await status('http://localhost:8080/healthz')).toBe('404')
    expect(await status('http://localhost:8080/openapi.json')).toBe('200')
    expect(await status('http://localhost:5000/v2/')).toBe('401')
    expect(await status('http://localhost:9090/readyz')).toBe('000')
  })

  test('the container of docs/install.md takes the push of the page, which another client pulls', async () => {
    await engine.shell(push)
    expect(await engine.shell('docker exec taproot taproot tree')).toMatch(/repo +taproot +1 tag/)
    const pulled = await engine.shell(`
      docker exec taproot cat .taproot/registry-token | crane auth login localhost:5000 --username _token --password-stdin
      crane validate --remote localhost:5000/demo/taproot:latest`)
    expect(pulled).toContain('PASS')
  })

  test('the container of docs/install.md runs as the user of the image, with a root that it can not write', async () => {
    expect(await engine.shell('docker exec taproot id -u')).toBe('65532\n')
    await expect(engine.shell('docker exec taproot touch /opt/taproot/file')).rejects.toThrow('Read-only file system')
  })

  test('the container of docs/install.md ends by itself within the time that Docker gives it', async () => {
    expect(await container.stop()).toBe(0)
  })
})

test('a docker run line with an unknown flag is refused', () => {
  expect(() => readDockerLine('docker run --privileged taproot dev')).toThrow('--privileged')
})

/** Returns the line that starts a server. */
function lineOf(script: string): string {
  const line = script.split('\n').find((text) => text.startsWith('docker run ') && text.endsWith(' dev'))
  if (line === undefined) throw new Error('docs/install.md has no docker run line')
  return line
}
