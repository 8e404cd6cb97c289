#include <iostream>
#include <stead.hpp>

int main() {
    const auto d = stead::dataset::bytes("x\n1\n2\n4\n", "x.csv");
    std::cout << stead::version() << " " << d.run({"sum:x"})["sum:x"].number() << "\n";
}
