-- What a worker in Lua asks of Linux: clocks, its descriptors, its memory, the CPUs that it may use.

local ffi = require 'ffi'

ffi.cdef [[
struct deepstone_time { long seconds; long nanoseconds; };
struct deepstone_entry { uint64_t inode; int64_t offset; unsigned short length; unsigned char type; char name[256]; };
typedef struct deepstone_folder deepstone_folder;
int clock_gettime(int clock, struct deepstone_time *now);
long read(int descriptor, void *buffer, size_t count);
long write(int descriptor, const void *buffer, size_t count);
int getpid(void);
int sched_setaffinity(int process, size_t size, const unsigned char *cpus);
deepstone_folder *opendir(const char *path);
struct deepstone_entry *readdir(deepstone_folder *folder);
int closedir(deepstone_folder *folder);
char *strerror(int number);
void *malloc(size_t size);
]]

local system = {}

local MONOTONIC, CPU_OF_PROCESS = 1, 2
local INTERRUPTED = 4
local CPU_SET_BYTES = 128
local time = ffi.new('struct deepstone_time')

local function clock(which)
   ffi.C.clock_gettime(which, time)
   return tonumber(time.seconds) + tonumber(time.nanoseconds) * 1e-9
end

-- Monotonic seconds, on the clock that Python's perf_counter has.
function system.clock()
   return clock(MONOTONIC)
end

function system.cpu_s()
   return clock(CPU_OF_PROCESS)
end

function system.pid()
   return ffi.C.getpid()
end

-- A function that returns the next line from a descriptor, or nil at its end. It sleeps in read() until there is one.
function system.lines(descriptor)
   local size = 65536
   local buffer, pending = ffi.new('char[?]', size), {}
   local function taken()
      local text = table.concat(pending)
      local stop = text:find('\n', 1, true)
      pending = {stop and text:sub(stop + 1) or text}
      return stop and text:sub(1, stop - 1)
   end
   return function()
      local line = taken()
      while not line do
         local got = tonumber(ffi.C.read(descriptor, buffer, size))
         if got == 0 then
            return nil
         elseif got > 0 then
            local chunk = ffi.string(buffer, got)
            pending[#pending + 1] = chunk
            line = chunk:find('\n', 1, true) and taken()  -- a long request is joined once, when it is all there
         elseif ffi.errno() ~= INTERRUPTED then
            error('cannot read requests: ' .. ffi.string(ffi.C.strerror(ffi.errno())))
         end
      end
      return line
   end
end

function system.write(descriptor, text)
   local place = 0
   while place < #text do
      local rest = text:sub(place + 1)
      local written = tonumber(ffi.C.write(descriptor, rest, #rest))
      if written > 0 then
         place = place + written
      elseif ffi.errno() ~= INTERRUPTED then
         error('cannot write a reply: ' .. ffi.string(ffi.C.strerror(ffi.errno())))
      end
   end
end

function system.set_affinity(cpus)
   local set = ffi.new('unsigned char[?]', CPU_SET_BYTES)
   for _, cpu in ipairs(cpus) do
      local place = math.floor(cpu / 8)
      set[place] = set[place] + 2 ^ (cpu % 8)
   end
   if ffi.C.sched_setaffinity(0, CPU_SET_BYTES, set) ~= 0 then
      error('cannot use these CPUs: ' .. ffi.string(ffi.C.strerror(ffi.errno())))
   end
end

-- The names in a folder.
function system.names(path)
   local found, folder = {}, ffi.C.opendir(path)
   if folder == nil then
      return found
   end
   local entry = ffi.C.readdir(folder)
   while entry ~= nil do
      local name = ffi.string(entry.name)
      if name ~= '.' and name ~= '..' then
         found[#found + 1] = name
      end
      entry = ffi.C.readdir(folder)
   end
   ffi.C.closedir(folder)
   return found
end

-- Which library serves malloc: the one that has its address. Named as the axis `allocator` does, else as its file.
function system.allocator()
   local address = tonumber(ffi.cast('uintptr_t', ffi.C.malloc))
   for line in io.lines('/proc/self/maps') do
      local first, last = line:match('^(%x+)%-(%x+)')
      if tonumber(first, 16) <= address and address < tonumber(last, 16) then
         local name = line:match('[^/%s]*$')
         return name:match('jemalloc') or name:match('tcmalloc') or name:match('^libc[.-]') and 'glibc' or name
      end
   end
   return 'unknown'
end

-- CPUs as the axis `affinity` writes them: 0-2+5.
local function format_cpus(cpus)
   local runs = {}
   for _, cpu in ipairs(cpus) do
      local last = runs[#runs]
      if last and cpu == last[2] + 1 then
         last[2] = cpu
      else
         runs[#runs + 1] = {cpu, cpu}
      end
   end
   for place, run in ipairs(runs) do
      runs[place] = run[1] == run[2] and tostring(run[1]) or run[1] .. '-' .. run[2]
   end
   return table.concat(runs, '+')
end

-- The CPUs that this process may use. All threads count: a library may have moved some of them.
function system.affinity()
   local may = {}
   for _, thread in ipairs(system.names('/proc/self/task')) do
      local file = io.open('/proc/self/task/' .. thread .. '/status')
      local text = file and file:read('*a') or ''  -- it may have ended meanwhile
      if file then
         file:close()
      end
      for first, last in (text:match('Cpus_allowed_list:%s*(%S+)') or ''):gmatch('(%d+)%-?(%d*)') do
         for cpu = tonumber(first), tonumber(last) or tonumber(first) do
            may[cpu] = true
         end
      end
   end
   local cpus = {}
   for cpu in pairs(may) do
      cpus[#cpus + 1] = cpu
   end
   table.sort(cpus)
   return format_cpus(cpus)
end

-- Bytes by name from /proc/self/status, such as VmHWM; nothing where the kernel does not tell.
local function status()
   local found, file = {}, io.open('/proc/self/status')
   if file then
      for name, kib in file:read('*a'):gmatch('(%w+):%s*(%d+) kB') do
         found[name] = tonumber(kib) * 1024
      end
      file:close()
   end
   return found
end

function system.host_peak_bytes()
   return status().VmHWM or {absent = 'this kernel does not report VmHWM'}
end

-- VmRSS (now) or VmHWM (at most so far) of this process less the files it has mapped; 0 where it is not told.
function system.host_bytes(name)
   local found = status()
   return (found[name] or 0) - (found.RssFile or 0)
end

-- Have the kernel count the peak of the host's memory from now on; false where it does not.
function system.forget_host_peak()
   local file = io.open('/proc/self/clear_refs', 'w')
   if not file then
      return false
   end
   local written = file:write('5') and file:flush()
   file:close()
   return written and true or false
end

-- The shared libraries that are loaded, by path, each once.
function system.libraries()
   local found, seen = {}, {}
   for line in io.lines('/proc/self/maps') do
      local path = line:match('(/%S.*%.so[%d.]*)$')
      if path and not seen[path] then
         seen[path] = true
         found[#found + 1] = path
      end
   end
   table.sort(found)
   return found
end

return system
